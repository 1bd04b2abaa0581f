/**
 * Where the prose of a report ends and the message it returns begins, when both are one text. Two signs, whichever
 * comes first: a line that announces the message, and a block of lines that is the header of a mail. Both may be quoted
 * or indented. Linear.
 */
import { RETURNED_BEHIND_RULER, RETURNED_SENTENCE } from './wordings.ts'

/** `returnedHeader` is the returned message from its first header line on, quotation marks removed; may be empty. */
export function splitReturnedText(text: string): { text: string; returnedHeader: string } {
  const lines = text.split('\n')
  const header = findHeader(lines)
  const marker = lines.findIndex(isMarker)
  const cuts = [header, marker].filter((index) => index !== -1)
  if (cuts.length === 0) return { text, returnedHeader: '' }
  // Behind a marker a header may be as short as two fields.
  const behindMarker = lines.findIndex((line, index) => index > marker && HEADER_LINE.test(line))
  const start = header === -1 ? behindMarker : header
  return {
    text: lines.slice(0, Math.min(...cuts)).join('\n'),
    returnedHeader: start === -1 ? '' : unquote(lines.slice(start)),
  }
}

const MOST_LINE_CHARACTERS = 200

function isMarker(line: string): boolean {
  const short = line.slice(0, MOST_LINE_CHARACTERS)
  return RETURNED_BEHIND_RULER.test(short) || RETURNED_SENTENCE.test(short)
}

// A header line, quoted or indented.
const HEADER_LINE = /^([>|\s]{0,12})([A-Za-z][A-Za-z0-9-]{1,40}):/
/** Fields that stand in the header of a mail and not in prose about one. */
const SURE_FIELDS = new Set('received return-path mime-version dkim-signature delivered-to'.split(' '))
const OTHER_FIELDS =
  'message-id from to cc date subject reply-to sender content-type user-agent content-transfer-encoding ' +
  'errors-to precedence list-id envelope-to authentication-results'
const FIELDS = new Set([...SURE_FIELDS, ...OTHER_FIELDS.split(' ')])
const FEWEST_FIELDS = 3
const MOST_BLOCK_LINES = 40
// The author of a report that somebody forwards: its header is not that of the returned message.
const REPORTER = /mailer-daemon|postmaster@/i

/** Line of the first block that is the header of a mail, or -1. */
function findHeader(lines: readonly string[]): number {
  let index = 0
  while (index < lines.length) {
    const block = readBlock(lines, index)
    if (block.isHeader && !block.isReport) return index
    index = block.end
  }
  return -1
}

/** Lines with fields of a mail, up to an empty one; a header has at least one of the sure ones. */
function readBlock(lines: readonly string[], from: number): { isHeader: boolean; isReport: boolean; end: number } {
  const first = HEADER_LINE.exec(lines[from] ?? '')
  const block = { isHeader: false, isReport: false, end: from + 1 }
  if (first === null || !isMailField(first[2]?.toLowerCase() ?? '')) return block
  const quote = first[1]?.length ?? 0
  const names = new Set<string>()
  let end = from
  for (; end < Math.min(lines.length, from + MOST_BLOCK_LINES); end++) {
    const line = lines[end] ?? ''
    const name = HEADER_LINE.exec(line)?.[2]?.toLowerCase()
    if (name === 'from' && REPORTER.test(line.slice(0, MOST_LINE_CHARACTERS))) block.isReport = true
    if (name !== undefined && isMailField(name)) names.add(name)
    else if (line.slice(quote).trim() === '') break
  }
  const isHeader = names.size >= FEWEST_FIELDS && [...names].some((name) => SURE_FIELDS.has(name))
  return { ...block, isHeader, end }
}

function isMailField(name: string): boolean {
  return FIELDS.has(name) || name.startsWith('x-')
}

function unquote(lines: readonly string[]): string {
  const quote = HEADER_LINE.exec(lines[0] ?? '')?.[1]?.length ?? 0
  return quote === 0 ? lines.join('\n') : lines.map((line) => line.slice(quote)).join('\n')
}
