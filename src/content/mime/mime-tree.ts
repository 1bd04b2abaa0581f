/**
 * The MIME tree of a message without its texts: built once by MailComposer and kept in pieces (content/README.md
 * "Rendering and DKIM"). Marks stand in the place of boundary and bodies; they are random, so nothing that a customer
 * wrote can be taken for one. RFC 2045, RFC 2046 §5.
 */
import { randomBytes } from 'node:crypto'
import MailComposer, { type MailComposerAlternative } from 'nodemailer/lib/mail-composer'
import type { Attachment } from '../../mail/message.ts'
import { attachmentPart, isInvitation } from './attachment-part.ts'
import type { BodyEncoding } from './body-text.ts'
import { base64Bytes, writeBase64Lines } from './transfer-encoding.ts'
import { relaxedBody } from './dkim.ts'
import { fieldName, splitFields } from '../../mail/header-fields.ts'

/** How the texts are encoded; null: there is no such part. */
export interface MimeShape {
  text: BodyEncoding | null
  html: BodyEncoding | null
}

/** Bytes that each message writes as base64: kept encoded they would take more than twice their memory. */
interface LargeAttachment {
  bytes: Uint8Array
}

/** The MIME fields of the header, the empty line and the body. */
export interface MimeTree {
  /** In order; `body` stands where the body begins. */
  pieces: readonly (Buffer | LargeAttachment | 'boundary' | 'text' | 'html' | 'body')[]
  /** At most, with boundaries and without texts. */
  bytes: number
  /** DKIM's relaxed form of its body is the body as it is, but for what the texts are. */
  isRelaxed: boolean
  /** Its one quoted-printable text is the end of the message; else the text stands in front of a line end. */
  endsWithText: boolean
}

export type MimeTreeOf = (shape: MimeShape) => Promise<MimeTree>

/** So many characters has what is put in the place of a boundary mark. */
export const BOUNDARY_CHARACTERS = 24
/** `=_` cannot stand in quoted-printable text, and base64 has no underscore: no body can hold a boundary. */
const BOUNDARY_PREFIX = '=_'
/** One line in either encoding, and in base64 without a fill at its end. */
const TEXT_MARK_BYTES = 21
const LINE_END_BYTES = 2
const READABLE: BodyEncoding = 'quoted-printable'
const MARKS = {
  boundary: randomBytes(BOUNDARY_CHARACTERS / 2).toString('hex'),
  text: randomBytes(TEXT_MARK_BYTES).toString('hex'),
  html: randomBytes(TEXT_MARK_BYTES).toString('hex'),
  attachment: randomBytes(TEXT_MARK_BYTES).toString('hex'),
}
/** Larger attachments are encoded once only where several messages have them. */
const MOST_KEPT_BYTES = 256 * 1024

// The fields of the MIME tree's root that are taken over.
const MIME_FIELD = /^(?:mime-version|content-[a-z-]+):/i
const MIME_VERSION = 'MIME-Version: 1.0\r\n'

/** Trees of a content with these attachments; each shape is built once. `isShared`: several messages are made of it. */
export function createMimeTrees(attachments: readonly Attachment[], isShared: boolean): MimeTreeOf {
  return attachments.length === 0 ? treeWithoutAttachments : keepingTrees(attachments, isShared)
}

const treeWithoutAttachments = keepingTrees([], true)

function keepingTrees(attachments: readonly Attachment[], isShared: boolean): MimeTreeOf {
  const kept = new Map<string, Promise<MimeTree>>()
  return (shape) => {
    const name = `${shape.text} ${shape.html}`
    const known = kept.get(name)
    if (known !== undefined) return known
    const tree = buildTree(shape, attachments, isShared)
    kept.set(name, tree)
    tree.catch(() => kept.delete(name))
    return tree
  }
}

async function buildTree(
  { text, html }: MimeShape,
  attachments: readonly Attachment[],
  isShared: boolean,
): Promise<MimeTree> {
  const invitations = attachments.filter(isInvitation)
  // Of several alternatives programs show one alone: several invitations stay files.
  const invitation = invitations.length === 1 ? invitations[0] : undefined
  const parts = attachments.map((attachment, index) =>
    attachmentPart(attachment, attachmentMark(index), attachment === invitation),
  )
  const composer = new MailComposer({
    text: alternative(MARKS.text, text),
    html: alternative(MARKS.html, html),
    alternatives: parts.filter((_part, index) => attachments[index] === invitation),
    attachments: parts.filter((_part, index) => attachments[index] !== invitation),
    baseBoundary: MARKS.boundary,
    boundaryPrefix: BOUNDARY_PREFIX,
    disableFileAccess: true,
    disableUrlAccess: true,
    // Not used in the result, and set so that none is made at random.
    messageId: '<unused@invalid>',
    date: new Date(0),
  })
  const bytes = await composer.compile().build()
  const headerEnd = bytes.indexOf('\r\n\r\n') + LINE_END_BYTES
  const bodyStart = headerEnd + LINE_END_BYTES
  const fields = splitFields(bytes.toString('latin1', 0, headerEnd)).filter((field) => MIME_FIELD.test(field))
  // The composer gives none to a file that is the whole message.
  const version = fields.some((field) => fieldName(field) === 'mime-version') ? '' : MIME_VERSION
  const header = Buffer.from(`${version}${fields.join('')}\r\n`, 'latin1')
  const endsWithText =
    attachments.length === 0 && [text, html].filter((encoding) => encoding !== null).join() === READABLE
  const end = endsWithText ? bytes.length - LINE_END_BYTES : bytes.length
  const places = [
    ...(text === null ? [] : placesOf(bytes, 'text', markIn(MARKS.text, text))),
    ...(html === null ? [] : placesOf(bytes, 'html', markIn(MARKS.html, html))),
    ...placesOf(bytes, 'boundary', MARKS.boundary),
    ...attachments.flatMap(({ bytes: content }, index) =>
      placesOf(bytes, bodyOf(content, isShared), attachmentMark(index)),
    ),
  ]
    .filter(({ start }) => start >= bodyStart)
    .toSorted((left, right) => left.start - right.start)
  return {
    pieces: [
      ...cut(header, placesOf(header, 'boundary', MARKS.boundary)),
      'body',
      ...cut(bytes.subarray(0, end), places, bodyStart),
    ],
    bytes: attachments.reduce((sum, { bytes: { length } }) => sum + base64Bytes(length), header.length + bytes.length),
    isRelaxed: isRelaxed(bytes.subarray(bodyStart)),
    endsWithText,
  }
}

/** Whatever its end is: that is looked at in each message. */
function isRelaxed(body: Buffer): boolean {
  const relaxed = relaxedBody(body)
  return body.subarray(0, relaxed.length - LINE_END_BYTES).equals(relaxed.subarray(0, -LINE_END_BYTES))
}

function alternative(mark: string, encoding: BodyEncoding | null): MailComposerAlternative | undefined {
  return encoding === null ? undefined : { content: mark, contentTransferEncoding: encoding }
}

function attachmentMark(index: number): string {
  return `${MARKS.attachment}${String(index).padStart(3, '0')}`
}

function bodyOf(bytes: Uint8Array, isShared: boolean): Buffer | LargeAttachment {
  if (!isShared && bytes.length > MOST_KEPT_BYTES) return { bytes }
  const encoded = Buffer.allocUnsafeSlow(base64Bytes(bytes.length))
  writeBase64Lines(bytes, encoded, 0)
  return encoded
}

interface Place {
  start: number
  length: number
  piece: MimeTree['pieces'][number]
}

const markIn = (mark: string, encoding: BodyEncoding): string =>
  encoding === 'base64' ? Buffer.from(mark).toString('base64') : mark

/** Where a mark stands in the bytes. */
function placesOf(bytes: Buffer, piece: Place['piece'], mark: string): Place[] {
  const places: Place[] = []
  for (let start = bytes.indexOf(mark); start >= 0; start = bytes.indexOf(mark, start + mark.length)) {
    places.push({ start, length: mark.length, piece })
  }
  return places
}

function cut(bytes: Buffer, places: readonly Place[], from = 0): Place['piece'][] {
  const pieces: Place['piece'][] = []
  let position = from
  for (const { start, length, piece } of places) {
    pieces.push(bytes.subarray(position, start), piece)
    position = start + length
  }
  return [...pieces, bytes.subarray(position)]
}
