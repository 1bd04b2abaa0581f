/**
 * Bytes of mail to text: transfer encodings, character sets, encoded words, and HTML down to its words. Never throws
 * and is linear: what is wrongly encoded comes out as what it most likely was. Texts go in with one character per byte.
 * RFC 2045 §6, RFC 2047; the names of the character sets are those of the Encoding Standard.
 */
import { TextDecoder } from 'node:util'

/** Decodes base64 and quoted-printable; everything else is taken as it is. */
export function decodeTransfer(body: string, encoding: string): Buffer {
  const name = encoding.trim().toLowerCase()
  if (name.startsWith('base64')) return Buffer.from(body, 'base64')
  return Buffer.from(name.startsWith('quoted-printable') ? decodeQuotedPrintable(body) : body, 'latin1')
}

/** `charset` as stated, or empty; a wrong or unknown one is guessed. */
export function decodeCharset(bytes: Buffer, charset: string): string {
  const label = charset
    .trim()
    .toLowerCase()
    .replace(/^(?:cp|windows)-?(\d+)$/, 'windows-$1')
  const isStated = label !== '' && !ASCII.has(label)
  const decoder = isStated ? decoderFor(ALIASES.get(label) ?? label) : undefined
  return decoder === undefined ? guessCharset(bytes) : decoder.decode(bytes)
}

/** A header value with its encoded words as text. */
export function decodeWords(value: string): string {
  const cut = value.slice(0, MOST_HEADER_CHARACTERS)
  // White space between two encoded words is not part of the text (RFC 2047 §6.2).
  const joined = cut.replace(/(=\?[^?\s]{1,60}\?[bq]\?[^?\s]{0,500}\?=)\s{1,100}(?==\?)/gi, '$1')
  // =?charset*language?encoding?text?=
  const text = joined.replace(/=\?([^?\s*]{1,60})(?:\*[^?\s]{0,20})?\?([bq])\?([^?]{0,500})\?=/gi, decodeWord)
  return text === cut ? decodeCharset(Buffer.from(cut, 'latin1'), '') : text
}

/** The words of a HTML text, its blocks and rows on lines of their own. */
export function htmlToText(html: string): string {
  return (
    html
      // Parts that are never shown.
      .replace(/<(style|script|head|title)\b[^<>]{0,1000}>/gi, '\u0000$1>')
      .split('\u0000')
      .map((piece, index) => (index === 0 ? piece : behindHidden(piece)))
      .join('')
      .replace(/\s+/g, ' ')
      // Tags that end a line.
      .replace(/<\/?(?:br|p|div|tr|li|table|h[1-6]|hr|ul|pre|blockquote)\b[^<>]{0,1000}>/gi, '\n')
      .replace(/<[^<>]{0,1000}>/g, ' ')
      .replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|([a-z]{2,8}));/gi, decodeEntity)
      .replace(/ {2,}/g, ' ')
      .replace(/ ?\n ?/g, '\n')
  )
}

const MOST_HEADER_CHARACTERS = 8_192
const ASCII = new Set(['us-ascii', 'ascii', 'ansi_x3.4-1968', 'unknown-8bit', 'x-unknown', '7bit', '8bit', 'binary'])
/** Names that the Encoding Standard does not know. */
const ALIASES = new Map([
  ['windows-932', 'shift_jis'],
  ['windows-936', 'gbk'],
  ['windows-949', 'euc-kr'],
  ['windows-950', 'big5'],
  ['windows-31j', 'shift_jis'],
  ['iso-2022-jp-ms', 'iso-2022-jp'],
  ['iso-2022-jp-1', 'iso-2022-jp'],
  ['iso-2022-jp-2', 'iso-2022-jp'],
  ['eucjp', 'euc-jp'],
  ['utf-8n', 'utf-8'],
])
const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'", nbsp: ' ' }
// The escape sequence into JIS X 0208, which no other text holds.
const JAPANESE_ESCAPE = '\u001b$'

function decodeQuotedPrintable(body: string): string {
  return (
    body
      // A soft line break, white space before it allowed.
      .replace(/=[ \t]{0,100}(?:\n|$)/g, '')
      .replace(/=([0-9a-f]{2})/gi, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 16)))
  )
}

function decoderFor(label: string): TextDecoder | undefined {
  try {
    return new TextDecoder(label)
  } catch (thrown) {
    // An unknown name is a RangeError.
    if (thrown instanceof RangeError) return undefined
    throw thrown
  }
}

function guessCharset(bytes: Buffer): string {
  if (bytes.includes(JAPANESE_ESCAPE)) return new TextDecoder('iso-2022-jp').decode(bytes)
  const text = bytes.toString('utf8')
  return text.includes('\ufffd') ? new TextDecoder('windows-1252').decode(bytes) : text
}

function decodeWord(word: string, charset: string, encoding: string, text: string): string {
  const bytes =
    encoding.toLowerCase() === 'b'
      ? Buffer.from(text, 'base64')
      : Buffer.from(decodeQuotedPrintable(text.replaceAll('_', ' ')), 'latin1')
  return bytes.length === 0 ? word : decodeCharset(bytes, charset)
}

/** What follows the end tag of a hidden element; all when it has none, for it may hold the whole text. */
function behindHidden(piece: string): string {
  const name = piece.slice(0, piece.indexOf('>')).toLowerCase()
  const end = piece.toLowerCase().indexOf(`</${name}`)
  return end === -1 ? piece.slice(name.length + 1) : piece.slice(end)
}

function decodeEntity(entity: string, decimal?: string, hexadecimal?: string, name?: string): string {
  if (name !== undefined) return ENTITIES[name.toLowerCase()] ?? entity
  const code = decimal === undefined ? Number.parseInt(hexadecimal ?? '', 16) : Number(decimal)
  return code > 0 && code <= 0x10_ff_ff ? String.fromCodePoint(code) : entity
}
