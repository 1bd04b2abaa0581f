/**
 * Many of one kind by one statement. Verbs ask and write row by row; what waits for its trip anyway is sent as one
 * statement over lists of values, which costs both sides a fifth. Pure.
 */

/** How a statement about one row is written for many. */
export interface MergedForm {
  /** ask: its rows are told with their place from 1; update: the places of the rows that were changed are told. */
  kind: 'ask' | 'insert' | 'update'
  /** That is written. */
  table: string
  /** Of an update: the parameter that names the row. */
  key: number
  /** With `types`, as `pg_prepared_statements` names them. */
  text(types: readonly string[]): string
  /** Of an insert: so many rows with values of their own, instead of lists, which large ones would have to be text in. */
  repeated?(rows: number): string
}

// An insert of one row: its beginning up to the values, and its table.
const INSERT = /^\s*(insert into (\w+)\s*\([^)]*\)\s*)values\s*\(/
// An update of the row that a number names, the last condition or one before others.
const UPDATE = /^\s*(update (\w+)\s+set\s[^]*?)\swhere\s([^]*)$/
const KEY = /\b(?:seq|\w+_seq|\w+_id) = \$(\d+)/

/** null: this statement goes alone. */
export function mergedForm(text: string): MergedForm | null {
  if (/^\s*select\b/.test(text)) return /\$1\b/.test(text) ? mergedQuestion(text) : null
  // What reads other rows, or is read, is not one of many.
  if (/\b(?:select|returning|do update)\b/.test(text)) return null
  return mergedInsert(text) ?? mergedUpdate(text)
}

function mergedQuestion(text: string): MergedForm {
  return {
    kind: 'ask',
    table: '',
    key: -1,
    text: (types) =>
      `select given.place, found.* from ${lists(types, ' with ordinality')} cross join lateral (${fromList(text)}) as found`,
  }
}

function mergedInsert(text: string): MergedForm | null {
  const found = INSERT.exec(text)
  if (found === null) return null
  const [start, into = '', table = ''] = found
  const end = closingBracket(text, start.length)
  const [values, rest] = [text.slice(start.length, end), text.slice(end + 1)]
  const columns = new Set(values.match(/\$\d+/g)).size
  // What is given once for all rows cannot stand behind them.
  if (/\$\d/.test(rest)) return null
  return {
    kind: 'insert',
    table,
    key: -1,
    text: (types) => `${into}select ${fromList(values)} from ${lists(types, '')} ${rest}`,
    repeated(rows) {
      const each = Array.from({ length: rows }, (_, row) => `(${shifted(values, row * columns)})`)
      return `${into}values ${each.join(', ')} ${rest}`
    },
  }
}

function mergedUpdate(text: string): MergedForm | null {
  const found = UPDATE.exec(text)
  if (found === null) return null
  const [, change = '', table = '', condition = ''] = found
  const key = KEY.exec(condition)?.[1]
  if (key === undefined || /\bor\b/.test(condition)) return null
  return {
    kind: 'update',
    table,
    key: Number(key) - 1,
    text: (types) =>
      `${fromList(change)} from ${lists(types, ' with ordinality')} where ${fromList(condition)} returning given.place`,
  }
}

/** Parameters with numbers that are higher by so many. */
const shifted = (part: string, by: number): string => part.replace(/\$(\d+)/g, (_, number) => `$${Number(number) + by}`)

/** Parameters as columns of the list. */
const fromList = (part: string): string => part.replace(/\$(\d+)/g, 'given.p$1')

function lists(types: readonly string[], ordinality: string): string {
  const columns = types.map((_, index) => `p${index + 1}`)
  if (ordinality !== '') columns.push('place')
  return `unnest(${types.map((type, index) => `$${index + 1}::${type}[]`).join(', ')})${ordinality} as given(${columns.join(', ')})`
}

/** Of the bracket that was opened before `from`. */
function closingBracket(text: string, from: number): number {
  let depth = 1
  let place = from
  while (depth > 0 && place < text.length) {
    if (text[place] === '(') depth += 1
    if (text[place] === ')') depth -= 1
    place += 1
  }
  return place - 1
}
