/**
 * Statements of the verbs as PostgreSQL reads them. Verbs are written in what both engines speak; what differs by rule
 * is exchanged here, once for each statement. Functions that PostgreSQL has under other names are defined in its schema
 * (migrations/0001-initial.sql).
 *
 * | SQLite | PostgreSQL |
 * | --- | --- |
 * | `?`, `@name`, `+?` (see queue/claim.ts) | `$1`, `$2` … |
 * | `as someName` | `as "someName"`: names with capital letters would lose them |
 * | `cross join a on …`, which keeps the order of tables | `join a on …` |
 * | `indexed by name` | nothing: its planner knows how common values are |
 * | `? is null` | a parameter of its own, whose type is known: whether the other one is null |
 * | `erased_address(?)`, `without_address(text, ?, …)` | the key for it never leaves this process |
 * | `subjects match ?`, words between quotes; words between spaces of its rows | `subjects.subject @> ?`, a list of words |
 */

/** What is sent for a parameter of a statement. */
export interface SentParameter {
  /** Of what the verb gives: its place, or its name; ROW_NUMBER: what it gives none for. */
  of: number | string
  as: 'value' | 'is-null' | 'erased' | 'forms' | 'words'
}

interface PostgresStatement {
  text: string
  parameters: SentParameter[]
}

// A text between quotes, a comment, a parameter with the plus that SQLite is told by, a word, or anything else.
const PIECE = /'(?:[^']|'')*'|"[^"]*"|--[^\n]*|\+?\?|\+?@\w+|[A-Za-z_]\w*|./gs
// A parameter as the verbs write it.
const PARAMETER = /^\+?(?:\?|@(\w+))$/
// Capital letters within: our own names for columns of a result.
const MIXED_CASE = /^[a-z]\w*[A-Z]\w*$/

/** In order. Where a rule has a kind, `$n` of what it finds becomes a parameter of that kind. */
const RULES: { find: RegExp; kind?: SentParameter['as']; write: string }[] = [
  { find: /\bcross join\b/g, write: 'join' },
  { find: /\bindexed by \w+/g, write: '' },
  { find: /\$(\d+) is (not )?null\b/g, kind: 'is-null', write: '$2$1::boolean' },
  { find: /\berased_address\(\$(\d+)\)/g, kind: 'erased', write: '$1::text' },
  {
    find: /\bwithout_address\((\w+|cast\(bytes as text\)), \$(\d+),/g,
    kind: 'forms',
    write: 'without_address($2, $1::text,',
  },
  { find: /\bsubjects match \$(\d+)/g, kind: 'words', write: 'subjects.subject @> $1::text[]' },
  // The server makes the list: statements that are given lists cannot be merged.
  {
    find: /(insert into subjects \(rowid, subject\) values \(\$\d+, )(\$\d+)/g,
    write: `$1string_to_array(nullif($2::text, ''), ' ')`,
  },
  { find: /\bcast\(bytes as text\)/g, write: `encode(bytes, 'escape')` },
]

/** An insert of a row: its table, and its columns. */
const INSERT = /^(\s*insert into (\w+)\s*\()([^)]*\)\s*values\s*\()/
/** By this name a new row gets its number. */
export const ROW_NUMBER = 'row_number'

/** `keyOf`: the column that rows of a table are numbered in; undefined: they are not. */
export function toPostgres(sql: string, keyOf: (table: string) => string | undefined): PostgresStatement {
  const numbered = sql.replace(INSERT, (whole, start: string, table: string, columns: string) => {
    const key = keyOf(table)
    if (key === undefined || new RegExp(`^\\s*${key}\\b`).test(columns)) return whole
    return `${start}${key}, ${columns}@${ROW_NUMBER}, `
  })
  const parameters: SentParameter[] = []
  const numberOf = (of: SentParameter['of'], as: SentParameter['as']): number => {
    const known = parameters.findIndex((each) => each.of === of && each.as === as)
    return known === -1 ? parameters.push({ of, as }) : known + 1
  }
  let places = 0
  const marked = numbered.replace(PIECE, (piece) => {
    const found = PARAMETER.exec(piece)
    if (found !== null) return `$${numberOf(found[1] ?? places++, 'value')}`
    return MIXED_CASE.test(piece) ? `"${piece}"` : piece
  })
  let text = marked
  for (const { find, kind, write } of RULES) {
    if (kind === undefined) text = text.replace(find, write)
    else text = text.replace(find, (_, ...groups: string[]) => rewritten(write, groups.slice(0, -2), kind))
  }
  return onlyUsed(text, parameters)

  /** Of the groups the one that is a number is the parameter; `$1` of what is written is its new number. */
  function rewritten(write: string, groups: (string | undefined)[], kind: SentParameter['as']): string {
    const number = groups.find((group) => group !== undefined && /^\d+$/.test(group))
    const others = groups.find((group) => group !== number) ?? ''
    const { of = 0 } = parameters[Number(number) - 1] ?? {}
    return write.replace(/\$([12])/g, (_, which) => (which === '1' ? `$${numberOf(of, kind)}` : others))
  }
}

/** A parameter that is named nowhere has no type: those that rules have replaced go, the others move up. */
function onlyUsed(text: string, parameters: readonly SentParameter[]): PostgresStatement {
  const used = parameters.filter((_, index) => new RegExp(`\\$${index + 1}(?!\\d)`).test(text))
  const renumbered = text.replace(/\$(\d+)/g, (_, number: string) => {
    const parameter = parameters[Number(number) - 1]
    return `$${used.findIndex((each) => each === parameter) + 1}`
  })
  return { text: renumbered, parameters: used }
}
