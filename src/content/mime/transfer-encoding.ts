/**
 * Transfer encodings of a text part: its bytes out of the wire form, and back.
 *
 * Decoding gives undefined for what is not strictly of its encoding: such a part is better left alone. Linear. RFC 2045
 * §6.7 and §6.8.
 */
import { quotedPrintable } from './quoted-printable.ts'

export type TransferEncoding = 'quoted-printable' | 'base64' | 'identity'

const BODY_LINE = { characters: 76, end: '\r\n' }
// The base64 alphabet, padded at the end alone.
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/
// An equals sign with or without its two digits.
const ESCAPE = /=([0-9A-Fa-f]{2})?/g

/** undefined: an encoding we do not know. */
export function readTransferEncoding(value: string): TransferEncoding | undefined {
  const name = value.toLowerCase()
  switch (name) {
    case 'quoted-printable':
    case 'base64':
      return name
    case '':
    case '7bit':
    case '8bit':
    case 'binary':
      return 'identity'
    default:
      return undefined
  }
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
  let isStrict = true
  const lines = text.split('\r\n').map((line, index, { length }) => {
    const end = endWithoutSpaces(line)
    const isSoft = line.charAt(end - 1) === '='
    const decoded = line.slice(0, isSoft ? end - 1 : end).replace(ESCAPE, (_escape, digits: string | undefined) => {
      if (digits === undefined) isStrict = false
      return String.fromCharCode(Number.parseInt(digits ?? '0', 16))
    })
    return isSoft || index === length - 1 ? decoded : `${decoded}\r\n`
  })
  return isStrict ? Buffer.from(lines.join(''), 'latin1') : undefined
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
