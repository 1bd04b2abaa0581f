/**
 * Transfer encodings of a text part: its bytes out of the wire form, and back. Decoding gives undefined for what is not
 * strictly of its encoding: such a part is better left alone. Linear. RFC 2045 §6.7 and §6.8.
 */
import { quotedPrintable } from './quoted-printable.ts'

export type TransferEncoding = 'quoted-printable' | 'base64' | 'identity'

const BODY_LINE = { characters: 76, end: '\r\n' }
// The base64 alphabet, padded at the end alone.
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/
// An equals sign and its two digits; one without them.
const ESCAPE = /=([0-9A-Fa-f]{2})/g
const ODD_EQUALS = /=(?![0-9A-Fa-f]{2})/

const NAMES: ReadonlyMap<string, TransferEncoding> = new Map([
  ['quoted-printable', 'quoted-printable'],
  ['base64', 'base64'],
  ...['', '7bit', '8bit', 'binary'].map((name): [string, TransferEncoding] => [name, 'identity']),
])

/** undefined: an encoding we do not know. */
export function readTransferEncoding(value: string): TransferEncoding | undefined {
  return NAMES.get(value.toLowerCase())
}

export function decodePart(bytes: Buffer, encoding: TransferEncoding): Buffer | undefined {
  if (encoding === 'identity') return bytes
  const text = bytes.toString('latin1')
  if (encoding === 'quoted-printable') return decodeQuotedPrintable(text)
  return BASE64.test(text.replace(/\s+/g, '')) ? Buffer.from(text, 'base64') : undefined
}

/** What was `identity` becomes quoted-printable: its lines may have grown beyond what SMTP takes. */
export function encodePart(bytes: Buffer, encoding: TransferEncoding): string {
  if (encoding === 'base64') return foldBase64(bytes.toString('base64'))
  return quotedPrintable(bytes).toString('latin1')
}

function decodeQuotedPrintable(text: string): Buffer | undefined {
  const lines = text.split('\r\n').map((line, index, { length }) => {
    const end = endWithoutSpaces(line)
    const isSoft = line.charAt(end - 1) === '='
    const content = line.slice(0, isSoft ? end - 1 : end)
    if (ODD_EQUALS.test(content)) return undefined
    const decoded = content.replace(ESCAPE, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
    return isSoft || index === length - 1 ? decoded : `${decoded}\r\n`
  })
  return lines.includes(undefined) ? undefined : Buffer.from(lines.join(''), 'latin1')
}

/** Spaces and tabs that a transport added at the end of a line. */
function endWithoutSpaces(line: string): number {
  let end = line.length
  while (line.charAt(end - 1) === ' ' || line.charAt(end - 1) === '\t') end--
  return end
}

/** Without a line end behind the last line. */
export function foldBase64(text: string, { characters, end } = BODY_LINE): string {
  const lines: string[] = []
  for (let start = 0; start < text.length; start += characters) lines.push(text.slice(start, start + characters))
  return lines.join(end)
}

const BYTES_OF_LINE = 57
/** Lines that are encoded at once. */
const BYTES_AT_ONCE = 1_024 * BYTES_OF_LINE

/** Of so many bytes as `writeBase64Lines` writes them. */
export function base64Bytes(length: number): number {
  const lines = Math.ceil(length / BYTES_OF_LINE)
  return 4 * Math.ceil(length / 3) + BODY_LINE.end.length * Math.max(0, lines - 1)
}

/** As `foldBase64`, with little memory of its own. Returns where it ends. */
export function writeBase64Lines(bytes: Uint8Array, target: Buffer, at: number): number {
  const source = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  let end = at
  for (let start = 0; start < source.length; start += BYTES_AT_ONCE) {
    if (start > 0) end += target.write(BODY_LINE.end, end, 'latin1')
    const text = source.toString('base64', start, Math.min(source.length, start + BYTES_AT_ONCE))
    end += target.write(foldBase64(text), end, 'latin1')
  }
  return end
}
