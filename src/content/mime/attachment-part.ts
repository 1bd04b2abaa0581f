/**
 * An attachment as a MIME part: its header, and a body that stands for its bytes as base64. A file name beyond ASCII stands in `filename*` and,
 * for readers that do not know that, in an ASCII form in `filename`; never as an encoded word, which may not stand
 * between quotes (RFC 2047 §5). Never throws. RFC 2045 §6.8, RFC 2183, RFC 2231 §3 and §4.
 */
import type { MailComposerAttachment } from 'nodemailer/lib/mail-composer'
import type { Attachment } from '../../mail/message.ts'

// type/subtype of RFC 2045 §5.1, with or without parameters.
const MEDIA_TYPE = /^[A-Za-z0-9!#$&^_.+-]+\/[A-Za-z0-9!#$&^_.+-]+(?:\s*;[ -~]*)?$/
// Types whose body may not be base64 (RFC 2046 §5.1 and §5.2.1), so that they cannot carry any bytes.
const COMPOSITE_TYPE = /^(?:multipart|message)\//i
const INVITATION_TYPE = /^text\/calendar\s*;(?:.*;)?\s*method=/i
/** Acceptance refuses these; here they would be a field of their own. */
const NO_ID = /[^!-;=?-~]/g
const OPEN_END = /[;\s]+$/
const OWN_NAME = /;\s*name\b/i
/** Of one piece of a name; a line has at most 78 characters. */
const MOST_PIECE_CHARACTERS = 54
/** NFKD makes up to 18 characters of one, and a line has at most 998 (RFC 5322 §2.1.1). */
const MOST_SHOWN_CHARACTERS = 255
/** What stands between quotes as it is: ASCII but quote and backslash, which readers unescape in different ways. */
const PLAIN_NAME = /^[ !#-[\]-~]*$/
// RFC 2231 §7: attribute-char, without the per cent sign.
const NOT_PLAIN = /[^A-Za-z0-9!#$&+.^_`{|}~-]/gu
const FOLD = '\r\n '

/** An invitation to a calendar, or an answer to one: the method says what it wants (RFC 6047 §2.4). */
export function isInvitation({ contentType, contentId }: Omit<Attachment, 'bytes'>): boolean {
  return contentId === null && INVITATION_TYPE.test(contentType)
}

/** `cid` tells the composer that html refers to it; an alternative is no file. */
export function attachmentPart(
  { name, contentType, contentId }: Omit<Attachment, 'bytes'>,
  body: string,
  isAlternative = false,
): MailComposerAttachment {
  const isLeafType = MEDIA_TYPE.test(contentType) && !COMPOSITE_TYPE.test(contentType)
  const type = isLeafType ? contentType.replace(OPEN_END, '') : 'application/octet-stream'
  const shown = PLAIN_NAME.test(name) ? name : asciiName(name)
  const header = [
    `Content-Type: ${type}${OWN_NAME.test(type) ? '' : `;${FOLD}name="${shown}"`}`,
    'Content-Transfer-Encoding: base64',
    ...(contentId === null ? [] : [`Content-ID: <${contentId.replace(NO_ID, '')}>`]),
    ...(isAlternative
      ? []
      : [`Content-Disposition: ${contentId === null ? 'attachment' : 'inline'}${nameParameters(name, shown)}`]),
  ]
  return { raw: `${header.join('\r\n')}\r\n\r\n${body}`, ...(contentId !== null && { cid: contentId }) }
}

/** The extended form first: readers that know both take the first one they find. */
function nameParameters(name: string, shown: string): string {
  const plain = `;${FOLD}filename="${shown}"`
  if (shown === name) return plain
  const pieces = encodedPieces(name)
  const number = (index: number): string => (pieces.length === 1 ? '' : `*${index}`)
  const extended = pieces.map(
    (piece, index) => `;${FOLD}filename${number(index)}*=${index === 0 ? "utf-8''" : ''}${piece}`,
  )
  return extended.join('') + plain
}

/** In UTF-8 with per cent signs; no character is cut in two. */
function encodedPieces(name: string): string[] {
  const pieces: string[] = ['']
  for (const character of name) {
    const encoded = character.replace(NOT_PLAIN, percentEncoded)
    if ((pieces.at(-1)?.length ?? 0) + encoded.length > MOST_PIECE_CHARACTERS) pieces.push('')
    pieces.push(`${pieces.pop()}${encoded}`)
  }
  return pieces
}

function percentEncoded(character: string): string {
  return [...Buffer.from(character)].map((byte) => `%${byte.toString(16).padStart(2, '0').toUpperCase()}`).join('')
}

/** Letters lose their accents; what is left beyond ASCII becomes an underscore. */
function asciiName(name: string): string {
  // Combining marks, which NFKD takes off their letters; then all but printable ASCII, quotes and backslashes.
  return name
    .normalize('NFKD')
    .replace(/\p{M}+/gu, '')
    .replace(/[^ !#-[\]-~]/gu, '_')
    .slice(0, MOST_SHOWN_CHARACTERS)
}
