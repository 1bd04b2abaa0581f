/**
 * From what prose says about a recipient to the piece that tells why: the reply of the remote server, where one is
 * quoted.
 */
import { diagnosticText, enhancedCodesIn, replyCodeIn } from './report-diagnostic.ts'

const MOST_SEGMENT_CHARACTERS = 8_192

/** One line, at most 2,048 characters. */
export function proseDiagnostic(segment: string): string {
  const paragraphs = segment.slice(0, MOST_SEGMENT_CHARACTERS).split(/\n\s{0,200}\n/)
  const withCode =
    paragraphs.find((text) => replyCodeIn(oneLine(text)) !== null) ??
    paragraphs.find((text) => enhancedCodesIn(oneLine(text)).length > 0)
  return diagnosticText(withCode ?? segment)
}

function oneLine(text: string): string {
  return text.replaceAll('\n', ' ')
}
