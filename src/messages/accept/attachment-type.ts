/**
 * The media type of an attachment (http/README.md "Attachments"): as its sender named it, else by the extension of its
 * name.
 *
 * Only what people commonly send; everything else is a plain file to every mail program. Pure. Types as registered with
 * IANA.
 */
import { isAscii, isUtf8 } from 'node:buffer'

const TYPES: ReadonlyMap<string, string> = new Map([
  ['txt', 'text/plain'],
  ['log', 'text/plain'],
  ['md', 'text/markdown'],
  ['csv', 'text/csv'],
  ['ics', 'text/calendar'],
  ['vcf', 'text/vcard'],
  ['htm', 'text/html'],
  ['html', 'text/html'],
  ['css', 'text/css'],
  ['xml', 'application/xml'],
  ['json', 'application/json'],
  ['yaml', 'application/yaml'],
  ['yml', 'application/yaml'],
  ['pdf', 'application/pdf'],
  ['rtf', 'application/rtf'],
  ['zip', 'application/zip'],
  ['gz', 'application/gzip'],
  ['doc', 'application/msword'],
  ['docx', 'application/vnd.openxmlformats-officedocument.wordprocessingml.document'],
  ['xls', 'application/vnd.ms-excel'],
  ['xlsx', 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet'],
  ['ppt', 'application/vnd.ms-powerpoint'],
  ['pptx', 'application/vnd.openxmlformats-officedocument.presentationml.presentation'],
  ['odt', 'application/vnd.oasis.opendocument.text'],
  ['ods', 'application/vnd.oasis.opendocument.spreadsheet'],
  ['odp', 'application/vnd.oasis.opendocument.presentation'],
  ['png', 'image/png'],
  ['jpg', 'image/jpeg'],
  ['jpeg', 'image/jpeg'],
  ['gif', 'image/gif'],
  ['webp', 'image/webp'],
  ['avif', 'image/avif'],
  ['svg', 'image/svg+xml'],
  ['bmp', 'image/bmp'],
  ['tif', 'image/tiff'],
  ['tiff', 'image/tiff'],
  ['heic', 'image/heic'],
  ['mp3', 'audio/mpeg'],
  ['m4a', 'audio/mp4'],
  ['ogg', 'audio/ogg'],
  ['wav', 'audio/wav'],
  ['mp4', 'video/mp4'],
  ['mov', 'video/quicktime'],
  ['webm', 'video/webm'],
  ['epub', 'application/epub+zip'],
  ['p7s', 'application/pkcs7-signature'],
  ['asc', 'application/pgp-signature'],
  ['pkpass', 'application/vnd.apple.pkpass'],
])

const PLAIN_FILE_TYPE = 'application/octet-stream'

// A type of text.
const TEXT = /^text\//i
// The parameter that says how a text is written.
const CHARSET = /; *charset *=/i

/** A text without a charset is ASCII to its readers (RFC 2046 §4.1.2): in UTF-8 it would arrive as a jumble of letters. */
export function attachmentType(named: string | undefined, name: string, bytes: Uint8Array): string {
  const type = named ?? typeByName(name)
  const needsCharset = TEXT.test(type) && !CHARSET.test(type) && !isAscii(bytes) && isUtf8(bytes)
  return needsCharset ? `${type}; charset=utf-8` : type
}

function typeByName(name: string): string {
  const extension = name.slice(name.lastIndexOf('.') + 1).toLowerCase()
  return TYPES.get(extension) ?? PLAIN_FILE_TYPE
}
