/**
 * CSV as RFC 4180 has it, row by row; lines end with CRLF, LF or CR, and an empty line is a row with one empty field.
 * Lazy and linear in the text; never throws: a row that breaks the rules or the bounds says so, and reading goes on at
 * the line below the fault. So a row takes microseconds, whatever the text.
 */
export interface CsvRow {
  /** Where it begins; the first line is 1. */
  line: number
  fields: string[]
  /** What is wrong with it as CSV, or null. */
  problem: string | null
}

/** Of a field in quotes. An address has at most 320. */
const MOST_CHARACTERS = 4_000
const MOST_FIELDS = 100
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
      if (row.fields.length === MOST_FIELDS) {
        row.problem = `more than ${MOST_FIELDS} fields`
        position = indexOf(LINE_END, csv, position)
        break
      }
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
  const faulty = (problem: string): Field => ({ text: '', end: indexOf(LINE_END, csv, start), problem })
  const inner = csv.slice(start + 1, start + 1 + MOST_CHARACTERS)
  for (let quote = inner.indexOf('"'); quote >= 0; quote = inner.indexOf('"', quote + 2)) {
    if (inner[quote + 1] === '"') continue
    const end = start + 1 + quote + 1
    if (indexOf(FIELD_END, csv, end) !== end) return faulty('text behind a closing quote')
    return { text: inner.slice(0, quote).replaceAll('""', '"'), end, problem: null }
  }
  const isWhole = start + 1 + inner.length === csv.length
  return faulty(
    isWhole ? 'a quote that is not closed' : `a quote that is not closed within ${MOST_CHARACTERS} characters`,
  )
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
