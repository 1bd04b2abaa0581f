/**
 * A submitted mail, of which leaf parts are encoded anew as quoted-printable or base64, because the way to its
 * recipient does not take them as they are: bytes beyond US-ASCII at a host without 8BITMIME, lines above 998 octets at
 * any host. It happens before signing, so the signature holds (RFC 6376 §5.3). What has no clear structure (an open
 * multipart, a field twice, beyond the limits) and what others have signed or encrypted stays as it is: such a mail
 * goes out all the same, which most hosts take, rather than not at all. Headers are not touched. Pure; linear in the
 * size for each level; never throws. RFC 2045 §6, RFC 5322 §2.1.1, RFC 6152 §3.
 */
import { isAscii } from 'node:buffer'
import { fieldName, fieldValue, readMediaType } from '../../mail/header-fields.ts'
import { mostEscapedBytes, mostQuotedPrintableBytes, writeQuotedPrintable } from './quoted-printable.ts'
import {
  createLooks,
  findHeaderEnd,
  readSubmittedMail,
  splitMultipart,
  type LooksLeft,
  type SubmittedMail,
} from './submitted-mail.ts'
import { encodePart, readTransferEncoding } from './transfer-encoding.ts'

/** test/README.md "Attacks". */
const MOST_DEPTH = 20
const EMPTY_LINE = '\r\n'
const FIRST_BEYOND_ASCII = 0x80
/** As quoted-printable breaks a line. */
const BROKEN_BEFORE_HYPHENS = '=\r\n--'
const SUBSTITUTE = 0x3f // ?
const LF = 0x0a
const LINE_END_BYTES = 2
/** With its line end: RFC 5322 §2.1.1. */
const LONGEST_LINE = 1_000

/** Why parts are encoded anew. */
interface Aim {
  /** Bytes that may stay as they are. */
  isFit(bytes: Buffer): boolean
  /** Also inside of a mail that is attached; else every byte of it stays. */
  entersMails: boolean
  /** What is between the parts, which nobody is shown. */
  between(bytes: Buffer): Buffer
}

const SEVEN_BITS: Aim = { isFit: isAscii, entersMails: true, between: withoutHighBytes }
const SHORT_LINES: Aim = { isFit: hasShortLines, entersMails: false, between: (bytes) => bytes }

/** For a host that takes US-ASCII alone. */
export function downgradeMail(mail: SubmittedMail): SubmittedMail {
  return encodeAnew(mail, SEVEN_BITS)
}

/** No leaf part has a line above 998 octets, which some hosts refuse, and others break, with the signature. */
export function shortenLines(mail: SubmittedMail): SubmittedMail {
  return encodeAnew(mail, SHORT_LINES)
}

interface Level {
  aim: Aim
  defaultType: string
  depth: number
  looks: LooksLeft
}

function encodeAnew(mail: SubmittedMail, aim: Aim): SubmittedMail {
  const made = encodeParts(mail, { aim, defaultType: 'text/plain', depth: 0, looks: createLooks() })
  return made === mail ? mail : withMimeVersion(made)
}

/** Without this field nobody has to mind the encoding of a part: RFC 2045 §4. */
export function withMimeVersion(mail: SubmittedMail): SubmittedMail {
  if (fieldValue(mail.fields, 'mime-version') !== '') return mail
  return { ...mail, fields: [...mail.fields, 'MIME-Version: 1.0\r\n'] }
}

/** The mail itself where nothing of it changes. */
function encodeParts(mail: SubmittedMail, level: Level): SubmittedMail {
  const { fields, rest } = mail
  const { aim, defaultType, depth } = level
  if (aim.isFit(rest) || depth > MOST_DEPTH) return mail
  const written = fieldValue(fields, 'content-type')
  const media = written === undefined ? undefined : readMediaType(written)
  const encodingName = fieldValue(fields, 'content-transfer-encoding')
  // What is encoded is fit; where it is not, nobody knows what it means.
  const isPlain = encodingName !== undefined && readTransferEncoding(encodingName) === 'identity'
  if (media === undefined || !isPlain) return mail
  const type = written === '' ? defaultType : media.type
  const body = rest.subarray(EMPTY_LINE.length)
  if (type === 'multipart/signed' || type === 'multipart/encrypted') return mail
  if (type.startsWith('message/') && !aim.entersMails) return mail
  if (type === 'message/rfc822') return withBody(mail, encodeInner(body, 'text/plain', level), body)
  if (!type.startsWith('multipart/')) return encodeLeaf(fields, body, type)
  const innerType = type === 'multipart/digest' ? 'message/rfc822' : 'text/plain'
  const whole = { start: 0, end: body.length }
  const parts = splitMultipart(body, whole, media.parameters.get('boundary') ?? '', level.looks)
  if (parts === undefined) return mail
  const pieces: Buffer[] = []
  let position = 0
  for (const { start, end } of parts) {
    pieces.push(aim.between(body.subarray(position, start)))
    pieces.push(encodeInner(body.subarray(start, end), innerType, level))
    position = end
  }
  pieces.push(aim.between(body.subarray(position)))
  return withBody(mail, Buffer.concat(pieces), body)
}

function encodeInner(bytes: Buffer, defaultType: string, level: Level): Buffer {
  if (findHeaderEnd(bytes, { start: 0, end: bytes.length }, level.looks) === undefined) return bytes
  const mail = readSubmittedMail(bytes)
  const made = encodeParts(mail, { ...level, defaultType, depth: level.depth + 1 })
  return made === mail ? bytes : joined(made)
}

/** Text stays readable where that is not longer; of anything else every byte counts, also those of its line ends. */
function encodeLeaf(fields: readonly string[], body: Buffer, type: string): SubmittedMail {
  const readable = type.startsWith('text/') ? readableText(body) : undefined
  const encoded = readable ?? Buffer.from(`${encodePart(body, 'base64')}\r\n`, 'latin1')
  return {
    fields: withEncoding(fields, readable === undefined ? 'base64' : 'quoted-printable'),
    rest: Buffer.concat([Buffer.from(EMPTY_LINE), encoded]),
  }
}

/** undefined: it is shorter as base64, or what goes on behind a break might be taken for a delimiter. */
function readableText(body: Buffer): Buffer | undefined {
  const target = Buffer.allocUnsafe(mostQuotedPrintableBytes(body.length))
  const limits = { mostEscaped: mostEscapedBytes(body.length), runs: null }
  const written = writeQuotedPrintable(body, target, 0, limits)
  const encoded = target.subarray(0, written?.end)
  return written === undefined || encoded.includes(BROKEN_BEFORE_HYPHENS) ? undefined : encoded
}

function withBody(mail: SubmittedMail, made: Buffer, body: Buffer): SubmittedMail {
  if (made.equals(body)) return mail
  const { fields } = mail
  const named = fields.some((field) => fieldName(field) === 'content-transfer-encoding')
  const rest = Buffer.concat([Buffer.from(EMPTY_LINE), made])
  // Whatever is inside has a transfer encoding of its own now.
  return { fields: named && isAscii(made) && !isAscii(body) ? withEncoding(fields, '7bit') : fields, rest }
}

function withEncoding(fields: readonly string[], encoding: string): string[] {
  const others = fields.filter((field) => fieldName(field) !== 'content-transfer-encoding')
  return [...others, `Content-Transfer-Encoding: ${encoding}\r\n`]
}

function joined({ fields, rest }: SubmittedMail): Buffer {
  return Buffer.concat([Buffer.from(fields.join(''), 'latin1'), rest])
}

/** Nobody is shown those. */
function withoutHighBytes(bytes: Buffer): Buffer {
  return isAscii(bytes) ? bytes : Buffer.from(bytes.map((byte) => (byte < FIRST_BEYOND_ASCII ? byte : SUBSTITUTE)))
}

/** Looks at every thousandth byte, and at those in front of it up to a line end. */
function hasShortLines(bytes: Buffer): boolean {
  let lineStart = 0
  while (bytes.length - lineStart > LONGEST_LINE - LINE_END_BYTES) {
    const lineEnd = bytes.lastIndexOf(LF, lineStart + LONGEST_LINE - 1)
    if (lineEnd < lineStart) return false
    lineStart = lineEnd + 1
  }
  return true
}
