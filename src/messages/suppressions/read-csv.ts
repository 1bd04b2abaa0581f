/**
 * CSV as RFC 4180 has it, row by row; lines end with CRLF, LF or CR, and an empty line is a row with one empty field.
 * Lazy and linear in the text; never throws: a row that breaks the rules says so, and reading goes on at the line below
 * the fault.
 */
export interface CsvRow {
  /** Where it begins; the first line is 1. */
  line: number
  fields: string[]
  /** What is wrong with it as CSV, or null. */
  problem: string | null
}

const BYTE_ORDER_MARK = '\u{feff}'
// What ends a field that is not in quotes.
const FIELD_END = /[,\r\n]/g
// A line end of any system.
const LINE_END = /\r\n|\r|\n/g

interface Field {
  text: string
  /** Behind it: a comma, a line end, or the end of the text. */
  end: number
  problem: string | null
}

export function* readCsv(csv: string): Generator<CsvRow, undefined> {
  let position = csv.startsWith(BYTE_ORDER_MARK) ? BYTE_ORDER_MARK.length : 0
  let line = 1
  while (position < csv.length) {
    const start = position
    const row: CsvRow = { line, fields: [], problem: null }
    for (;;) {
      const field = csv[position] === '"' ? readQuoted(csv, position) : readPlain(csv, position)
      row.fields.push(field.text)
      row.problem ??= field.problem
      position = field.end
      if (csv[position] !== ',') break
      position += 1
    }
    position = afterLineEnd(csv, position)
    line += countLineEnds(csv, start, position)
    yield row
  }
  return undefined
}

function readPlain(csv: string, start: number): Field {
  const end = indexOf(FIELD_END, csv, start)
  const text = csv.slice(start, end)
  return { text, end, problem: text.includes('"') ? 'a quote within a field that does not begin with one' : null }
}

/** `start` is the opening quote. A field that is not as it should be ends with the line it begins in. */
function readQuoted(csv: string, start: number): Field {
  let text = ''
  let from = start + 1
  const faulty = (problem: string): Field => ({ text, end: indexOf(LINE_END, csv, start), problem })
  for (;;) {
    const quote = csv.indexOf('"', from)
    if (quote < 0) return faulty('a quote that is not closed')
    text += csv.slice(from, quote)
    from = quote + 2
    if (csv[quote + 1] === '"') {
      text += '"'
      continue
    }
    const isEnd = indexOf(FIELD_END, csv, quote + 1) === quote + 1
    return isEnd ? { text, end: quote + 1, problem: null } : faulty('text behind a closing quote')
  }
}

/** The end of the text where there is none. */
function indexOf(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from
  return pattern.exec(text)?.index ?? text.length
}

function afterLineEnd(csv: string, position: number): number {
  return csv.startsWith('\r\n', position) ? position + 2 : Math.min(position + 1, csv.length)
}

function countLineEnds(csv: string, start: number, end: number): number {
  return csv.slice(start, end).match(LINE_END)?.length ?? 0
}
