/**
 * MIME: header fields, bodies and attachments become the bytes of a message, unsigned.
 *
 * The same input gives the same bytes: boundaries come from `seed`, and the caller gives Date and Message-ID. Only CRLF
 * ends lines, no line has more than 998 octets, and there is no NUL: text is quoted-printable or base64, attachments
 * are base64. The header fields are written by us and only the MIME tree by MailComposer, whose own header fields
 * (Date, Message-ID) are left out. It is given checked strings field by field and reads no files and no URLs.
 * RFC 5322 §2.1, RFC 2045, RFC 2046 §5.
 */
import { createHash } from 'node:crypto'
import MailComposer from 'nodemailer/lib/mail-composer'
import type { MailComposerAlternative, MailComposerAttachment } from 'nodemailer/lib/mail-composer'
import type { Attachment } from '../mail/message.ts'

export interface MessageParts {
  /** Header fields, each with its CRLF; MIME-Version and Content-* are added here. */
  fields: readonly string[]
  /** null or '': no such part. */
  html: string | null
  text: string | null
  attachments: readonly Attachment[]
  /** Makes the boundaries: the message id. */
  seed: string
}

/** `=_` cannot stand in quoted-printable text, and base64 has no underscore: no body can hold a boundary. */
const BOUNDARY_PREFIX = '=_'
const BOUNDARY_CHARACTERS = 24
/** Share of bytes written as three above which base64 is shorter: 3x + (1 - x) = 4/3 at x = 1/6. */
const BASE64_SHARE = 1 / 6

// A field of the header block: up to the next line that does not start with white space.
const FIELD = /[^\r\n]+(?:\r\n[ \t][^\r\n]*)*\r\n/g
// The fields of the MIME tree's root that are taken over.
const MIME_FIELD = /^(?:mime-version|content-[a-z-]+):/i
// type/subtype of RFC 2045 §5.1, with or without parameters.
const MEDIA_TYPE = /^[A-Za-z0-9!#$&^_.+-]+\/[A-Za-z0-9!#$&^_.+-]+(?:\s*;[ -~]*)?$/
// Types whose body may not be base64 (RFC 2046 §5.1 and §5.2.1), so that they cannot carry any bytes.
const COMPOSITE_TYPE = /^(?:multipart|message)\//i

export async function composeMessage(parts: MessageParts): Promise<Buffer> {
  const composer = new MailComposer({
    text: alternative(parts.text),
    html: alternative(parts.html),
    attachments: parts.attachments.map(attachmentOptions),
    baseBoundary: createHash('sha256').update(parts.seed).digest('hex').slice(0, BOUNDARY_CHARACTERS),
    boundaryPrefix: BOUNDARY_PREFIX,
    disableFileAccess: true,
    disableUrlAccess: true,
    // Not used in the result, and set so that none is made at random.
    messageId: '<unused@invalid>',
    date: new Date(0),
  })
  const bytes = await composer.compile().build()
  const bodyStart = bytes.indexOf('\r\n\r\n') + 2
  const mimeFields = bytes.toString('latin1', 0, bodyStart).match(FIELD) ?? []
  const header = parts.fields.join('') + mimeFields.filter((field) => MIME_FIELD.test(field)).join('')
  return Buffer.concat([Buffer.from(header), bytes.subarray(bodyStart)])
}

function alternative(text: string | null): MailComposerAlternative | undefined {
  if (text === null || text === '') return undefined
  // Any line end, also a lone CR or LF.
  const content = Buffer.from(text.replace(/\r\n|\r|\n/g, '\r\n'))
  return { content, contentTransferEncoding: shorterEncoding(content) }
}

function shorterEncoding(bytes: Uint8Array): 'quoted-printable' | 'base64' {
  let escaped = 0
  // Beyond ASCII, the equals sign, and controls other than those of a line end.
  for (const byte of bytes) {
    if (byte > 0x7e || byte === 0x3d || (byte < 0x20 && byte !== 0x0d && byte !== 0x0a)) escaped++
  }
  return escaped > bytes.length * BASE64_SHARE ? 'base64' : 'quoted-printable'
}

function attachmentOptions(attachment: Attachment): MailComposerAttachment {
  const { name, contentType, contentId, bytes } = attachment
  const isLeafType = MEDIA_TYPE.test(contentType) && !COMPOSITE_TYPE.test(contentType)
  const options: MailComposerAttachment = {
    filename: name,
    content: Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    contentType: isLeafType ? contentType : 'application/octet-stream',
    contentDisposition: contentId === null ? 'attachment' : 'inline',
    contentTransferEncoding: 'base64',
  }
  return contentId === null ? options : { ...options, cid: contentId }
}
