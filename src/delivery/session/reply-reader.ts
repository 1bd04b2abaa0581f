/**
 * Cuts what an SMTP server sends into replies: bounded, strict about codes, and safe to store and show. A line ends
 * with LF, a CR before it belongs to it; every other control character is text. Anything that is no reply (no code, a
 * code outside 200 to 599, several codes in one reply, over 64 KiB or 100 lines) is told once as malformed, and nothing
 * after it is read. At most one unfinished line is kept. Never throws. RFC 5321 §4.2; delivery/README.md "Stages",
 * test/README.md "Attacks".
 */
import { isUtf8 } from 'node:buffer'

/** A complete reply as it came: its lines without their ends, joined by LF. */
export type RawReply = { code: number; text: string }

export type ReplyReader = ReturnType<typeof createReplyReader>

/** `onMalformed`: what the host sent instead of a reply, as far as it may be shown. */
type ReplyReaderOptions = { onReply: (reply: RawReply) => void; onMalformed: (reason: string) => void }

const MOST_REPLY_BYTES = 64 * 1024
const MOST_REPLY_LINES = 100
const FIRST_CAPACITY = 256
const LF = 0x0a
const CR = 0x0d
const HYPHEN = 0x2d
// Three digits that RFC 5321 knows, then a space, a hyphen or the end of the line.
const CODE = /^[2-5]\d\d(?:[ -]|$)/

export function createReplyReader({ onReply, onMalformed }: ReplyReaderOptions) {
  let unfinished = Buffer.alloc(0)
  let unfinishedBytes = 0
  /** Lines of the reply that is being read. */
  let lines: string[] = []
  let replyBytes = 0
  let isBroken = false

  function giveUp(reason: string): void {
    isBroken = true
    unfinished = Buffer.alloc(0)
    lines = []
    onMalformed(reason)
  }

  /** Doubles its room, so that a server that sends single bytes costs no more than one that does not. */
  function keep(bytes: Buffer): void {
    const needed = unfinishedBytes + bytes.length
    if (needed > unfinished.length) {
      const larger = Buffer.alloc(Math.max(FIRST_CAPACITY, 2 * needed))
      unfinished.copy(larger, 0, 0, unfinishedBytes)
      unfinished = larger
    }
    bytes.copy(unfinished, unfinishedBytes)
    unfinishedBytes = needed
  }

  function readLine(line: string): void {
    replyBytes += line.length
    if (!CODE.test(line)) return giveUp(`malformed reply: ${line}`)
    if (replyBytes > MOST_REPLY_BYTES) return giveUp(TOO_LONG)
    const isLast = line.charCodeAt(3) !== HYPHEN
    const code = line.slice(0, 3)
    // Nearly all replies are of one line.
    if (isLast && lines.length === 0) return tell(code, line)
    if (lines.length > 0 && !lines[0]?.startsWith(code)) return giveUp(`several codes in one reply: ${line}`)
    if (lines.length >= MOST_REPLY_LINES) return giveUp(`a reply of more than ${MOST_REPLY_LINES} lines`)
    lines.push(line)
    if (!isLast) return
    const text = lines.join('\n')
    lines = []
    tell(code, text)
  }

  function tell(code: string, text: string): void {
    replyBytes = 0
    onReply({ code: Number(code), text })
  }

  return {
    /** Calls back for each reply that these bytes complete, in order. */
    push(bytes: Buffer): void {
      if (isBroken) return
      const end = bytes.lastIndexOf(LF) + 1
      if (end > 0) {
        const complete = unfinishedBytes === 0 ? bytes.subarray(0, end) : joined(bytes.subarray(0, end))
        const text = decode(complete)
        for (let start = 0; start < text.length && !isBroken;) {
          const lineEnd = text.indexOf('\n', start)
          readLine(text.slice(start, text.charCodeAt(lineEnd - 1) === CR ? lineEnd - 1 : lineEnd))
          start = lineEnd + 1
        }
      }
      if (isBroken || end === bytes.length) return
      if (replyBytes + unfinishedBytes + bytes.length - end > MOST_REPLY_BYTES) return giveUp(TOO_LONG)
      keep(bytes.subarray(end))
    },
    /** Bytes or lines of a reply that has not ended. */
    hasRest: () => unfinishedBytes > 0 || lines.length > 0,
  }

  function joined(bytes: Buffer): Buffer {
    const whole = Buffer.concat([unfinished.subarray(0, unfinishedBytes), bytes])
    unfinished = Buffer.alloc(0)
    unfinishedBytes = 0
    return whole
  }
}

const TOO_LONG = `a reply of more than ${MOST_REPLY_BYTES} bytes`

/** Servers write in UTF-8, or in some set of single bytes. */
function decode(bytes: Buffer): string {
  return bytes.toString(isUtf8(bytes) ? 'utf8' : 'latin1')
}
