/**
 * A mail with bytes beyond US-ASCII, made fit for a host without 8BITMIME: leaf parts as quoted-printable or base64. It
 * happens before signing, so the signature holds (RFC 6376 §5.3). What has no clear structure (an open multipart, a
 * field twice, beyond the limits) and what others have signed or encrypted stays as it is: such a mail goes out in 8
 * bits, which most hosts take, rather than not at all. Headers are not touched. Pure; linear in the size for each
 * level; never throws. RFC 2045 §6, RFC 6152 §3.
 */
import { isAscii } from 'node:buffer'
import { fieldName, fieldValue, readMediaType } from '../../mail/header-fields.ts'
import {
  createLooks,
  findHeaderEnd,
  readSubmittedMail,
  splitMultipart,
  type LooksLeft,
  type SubmittedMail,
} from '../../content/mime/submitted-mail.ts'
import { encodePart, readTransferEncoding } from '../../content/mime/transfer-encoding.ts'

/** test/README.md "Attacks". */
const MOST_DEPTH = 20
const EMPTY_LINE = '\r\n'
const FIRST_BEYOND_ASCII = 0x80
const SUBSTITUTE = 0x3f // ?

export function downgradeMail(mail: SubmittedMail): SubmittedMail {
  const made = downgrade(mail, { defaultType: 'text/plain', depth: 0, looks: createLooks() })
  // Without it nobody has to mind the encoding.
  if (made === mail || fieldValue(mail.fields, 'mime-version') !== '') return made
  return { ...made, fields: [...made.fields, 'MIME-Version: 1.0\r\n'] }
}

interface Level {
  defaultType: string
  depth: number
  looks: LooksLeft
}

function downgrade(mail: SubmittedMail, level: Level): SubmittedMail {
  const { fields, rest } = mail
  const { defaultType, depth } = level
  if (isAscii(rest) || depth > MOST_DEPTH) return mail
  const written = fieldValue(fields, 'content-type')
  const media = written === undefined ? undefined : readMediaType(written)
  const encodingName = fieldValue(fields, 'content-transfer-encoding')
  // An encoded part has no such bytes; where it does, nobody knows what they mean.
  const isPlain = encodingName !== undefined && readTransferEncoding(encodingName) === 'identity'
  if (media === undefined || !isPlain) return mail
  const type = written === '' ? defaultType : media.type
  const body = rest.subarray(EMPTY_LINE.length)
  if (type === 'multipart/signed' || type === 'multipart/encrypted') return mail
  if (type === 'message/rfc822') {
    return withBody(fields, downgradeInner(body, 'text/plain', level))
  }
  if (!type.startsWith('multipart/')) return encodeLeaf(fields, body, type)
  const innerType = type === 'multipart/digest' ? 'message/rfc822' : 'text/plain'
  const parts = splitMultipart(
    body,
    { start: 0, end: body.length },
    media.parameters.get('boundary') ?? '',
    level.looks,
  )
  if (parts === undefined) return mail
  const pieces: Buffer[] = []
  let position = 0
  for (const { start, end } of parts) {
    pieces.push(withoutHighBytes(body.subarray(position, start)))
    pieces.push(downgradeInner(body.subarray(start, end), innerType, level))
    position = end
  }
  pieces.push(withoutHighBytes(body.subarray(position)))
  return withBody(fields, Buffer.concat(pieces))
}

function downgradeInner(bytes: Buffer, defaultType: string, { depth, looks }: Level): Buffer {
  if (findHeaderEnd(bytes, { start: 0, end: bytes.length }, looks) === undefined) return bytes
  return joined(downgrade(readSubmittedMail(bytes), { defaultType, depth: depth + 1, looks }))
}

/** Text stays readable; of anything else every byte counts, also those of its line ends. */
function encodeLeaf(fields: readonly string[], body: Buffer, type: string): SubmittedMail {
  const encoding = type.startsWith('text/') ? 'quoted-printable' : 'base64'
  const encoded = encodePart(body, encoding === 'base64' ? 'base64' : 'identity')
  return { fields: withEncoding(fields, encoding), rest: Buffer.from(`${EMPTY_LINE}${encoded}`, 'latin1') }
}

function withBody(fields: readonly string[], body: Buffer): SubmittedMail {
  const named = fields.some((field) => fieldName(field) === 'content-transfer-encoding')
  const rest = Buffer.concat([Buffer.from(EMPTY_LINE), body])
  // Whatever is inside has a transfer encoding of its own now.
  return { fields: named && isAscii(body) ? withEncoding(fields, '7bit') : fields, rest }
}

function withEncoding(fields: readonly string[], encoding: string): string[] {
  const others = fields.filter((field) => fieldName(field) !== 'content-transfer-encoding')
  return [...others, `Content-Transfer-Encoding: ${encoding}\r\n`]
}

function joined({ fields, rest }: SubmittedMail): Buffer {
  return Buffer.concat([Buffer.from(fields.join(''), 'latin1'), rest])
}

/** Preamble, delimiters and epilogue: nobody is shown those. */
function withoutHighBytes(bytes: Buffer): Buffer {
  return isAscii(bytes) ? bytes : Buffer.from(bytes.map((byte) => (byte < FIRST_BEYOND_ASCII ? byte : SUBSTITUTE)))
}
