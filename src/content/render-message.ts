/**
 * From stored content and the facts of one message to the bytes that are sent: fill in, compose, sign
 * (content/README.md "The road, and its files"). The same input gives the same bytes on every attempt: time,
 * identifiers and boundaries come from the facts. The promise rejects only for a fault of ours or an unusable DKIM key.
 * RFC 5322 §3.6.
 */
import { hash } from 'node:crypto'
import { fieldName } from '../mail/header-fields.ts'
import { complaintToken } from '../mail/message-token.ts'
import type { RenderFacts } from '../mail/message.ts'
import {
  composedFields,
  dateField,
  messageIdField,
  messageUrls,
  ownFields,
  type FieldsInput,
  type RenderSettings,
} from './message-fields.ts'
import { hasText, toUtf8, writeBase64, writeReadable, type BodyText } from './mime/body-text.ts'
import { signMessage, SIGNATURE_ROOM, type Signer, type UnsignedMessage } from './mime/dkim.ts'
import { BOUNDARY_CHARACTERS, type MimeShape, type MimeTree, type MimeTreeOf } from './mime/mime-tree.ts'
import { mostEscapedBytes, mostQuotedPrintableBytes } from './mime/quoted-printable.ts'
import type { SubmittedMail } from './mime/submitted-mail.ts'
import { writeBase64Lines } from './mime/transfer-encoding.ts'
import { bodiesOf, submittedMailOf, type MessageBodies, type PreparedContent } from './prepare-content.ts'

/** Longer messages have memory of their own. */
const SCRATCH_BYTES = 256 * 1024
/** Each message is written here first, and copied out when its length is known. */
const scratch = Buffer.allocUnsafe(SCRATCH_BYTES)
/** And its texts in UTF-8 here. */
const textScratch = { text: Buffer.allocUnsafe(SCRATCH_BYTES), html: Buffer.allocUnsafe(SCRATCH_BYTES) }
/** Of a longer text the white space is not noted: it may be all white space, and the list eight times as long. */
const MOST_NOTED_BYTES = 256 * 1024
/** With which the rest of a submitted mail begins. */
const EMPTY_LINE = '\r\n'
/** RFC 2045 §6.7 (5). */
const SOFT_BREAK = '=\r\n'
const LF = 0x0a

export interface ComposeInput {
  content: PreparedContent
  facts: RenderFacts
  /** Host name of the envelope sender's domain. */
  returnPath: string
  /** Scheme and host of links that lead back to us, without a slash at the end. */
  trackingBaseUrl: string
  settings: RenderSettings
}

export interface RenderInput extends ComposeInput {
  /** At least one; the first one's signature is the topmost. */
  signers: readonly Signer[]
}

export async function renderMessage(input: RenderInput): Promise<Buffer> {
  const { unsigned } = await composeUnsigned(input, input.signers.length * SIGNATURE_ROOM)
  return signMessage(unsigned, input.signers, input.facts.acceptedAt)
}

/** With so many free bytes in front. */
export async function composeUnsigned(input: ComposeInput, room = 0) {
  const { content, facts, returnPath, trackingBaseUrl: baseUrl, settings } = input
  const urls = messageUrls({ messageId: facts.messageId, baseUrl, keys: settings.keys })
  const complaint = complaintToken(facts.messageId, settings.keys.complaint)
  const fieldsInput = { content: content.stored, facts, complaint, returnPath, urls, settings }
  const mail = submittedMailOf(content, urls)
  if (mail !== null) return composed(null, withOwnFields(mail, fieldsInput, room))
  const bodies = bodiesOf(content, facts.variables, urls)
  const fields = composedFields(fieldsInput, bodies.subject)
  const parts = { ...bodies, fields, treeOf: content.treeOf, seed: facts.messageId, room }
  return composed(bodies, await composeMessage(parts))
}

/** `bodies`: what is in it, filled in; of a submitted mail nothing is known apart. `bytes`: unsigned. */
function composed(bodies: MessageBodies | null, unsigned: UnsignedMessage) {
  return { bodies, unsigned, bytes: unsigned.buffer.subarray(unsigned.start) }
}

/** Ours on top, in place of others of the same names; Date and Message-ID only where there are none. */
function withOwnFields({ fields, rest }: SubmittedMail, input: FieldsInput, room: number): UnsignedMessage {
  const own = ownFields(input)
  const ownNames = new Set(own.map(fieldName))
  const theirs = fields.filter((field) => !ownNames.has(fieldName(field)))
  const names = new Set(theirs.map(fieldName))
  const missing = [
    ...(names.has('date') ? [] : [dateField(input.facts)]),
    ...(names.has('message-id') ? [] : [messageIdField(input)]),
  ]
  const header = Buffer.from([...missing, ...own, ...theirs].join(''), 'latin1')
  const buffer = Buffer.concat([Buffer.alloc(room), header, rest])
  return { buffer, start: room, bodyStart: room + header.length + EMPTY_LINE.length, runs: null }
}

interface MessageParts {
  /** Header fields, each with its CRLF; MIME-Version and Content-* are added here. */
  fields: readonly string[]
  /** null or without text: no such part. */
  html: BodyText | null
  text: BodyText | null
  /** Of the content. */
  treeOf: MimeTreeOf
  /** Makes the boundaries: the message id. */
  seed: string
  /** Free bytes in front of the message. */
  room: number
}

/**
 * Header fields, bodies and attachments become the bytes of a message, unsigned. Only CRLF ends lines, none has more
 * than 998 octets or begins with a dot, and there is no NUL. RFC 5322 §2.1, RFC 2045, RFC 2046 §5.
 */
async function composeMessage({ fields, html, text, treeOf, seed, room }: MessageParts): Promise<UnsignedMessage> {
  const bodies = { text: text ?? [], html: html ?? [] }
  const boundary = hash('sha256', seed).slice(0, BOUNDARY_CHARACTERS)
  const parts = { header: Buffer.from(fields.join('')), bodies, boundary, room }
  let shape: MimeShape = {
    text: hasText(bodies.text) ? 'quoted-printable' : null,
    html: hasText(bodies.html) ? 'quoted-printable' : null,
  }
  for (;;) {
    const written = write(parts, await treeOf(shape), shape)
    if (typeof written !== 'string') return written
    shape = { ...shape, [written]: 'base64' }
  }
}

interface PartsToWrite {
  header: Buffer
  bodies: Record<'text' | 'html', BodyText>
  boundary: string
  room: number
}

/** A name: this text is shorter as base64. */
function write(
  { header, bodies, boundary, room }: PartsToWrite,
  tree: MimeTree,
  shape: MimeShape,
): UnsignedMessage | 'text' | 'html' {
  const utf8 = { text: toUtf8(bodies.text, textScratch.text), html: toUtf8(bodies.html, textScratch.html) }
  // In either encoding.
  const textBytes = mostQuotedPrintableBytes(utf8.text.bytes) + mostQuotedPrintableBytes(utf8.html.bytes)
  const most = room + header.length + tree.bytes + textBytes
  const target = most <= SCRATCH_BYTES ? scratch : Buffer.allocUnsafe(most)
  const isNoted = tree.isRelaxed && utf8.text.bytes + utf8.html.bytes <= MOST_NOTED_BYTES
  const runs: number[] | null = isNoted ? [] : null
  let end = room + header.copy(target, room)
  let bodyStart = end
  for (const piece of tree.pieces) {
    if (typeof piece !== 'string') {
      end = 'copy' in piece ? end + piece.copy(target, end) : writeBase64Lines(piece.bytes, target, end)
    } else if (piece === 'boundary') {
      end += target.write(boundary, end, 'latin1')
    } else if (piece === 'body') {
      bodyStart = end
    } else {
      const written =
        shape[piece] === 'base64'
          ? writeBase64(bodies[piece], target, end)
          : writeReadable(utf8[piece], target, end, { mostEscaped: mostEscapedBytes(utf8[piece].bytes), runs })
      if (written === undefined) return piece
      end = written
    }
  }
  if (tree.endsWithText) end = closeText(target, end)
  return { buffer: ownBytes(target, room, end), start: room, bodyStart, runs }
}

/** The target itself where it is no scratch, and not much longer than what was written. */
function ownBytes(target: Buffer, from: number, end: number): Buffer {
  if (target !== scratch && target.length < 2 * end) return target.subarray(0, end)
  const buffer = Buffer.allocUnsafe(end)
  target.copy(buffer, from, from, end)
  return buffer
}

/** A message ends with a line end. Where its text has none there, it is a soft one, which belongs to no text. */
function closeText(target: Buffer, end: number): number {
  return target[end - 1] === LF ? end : end + target.write(SOFT_BREAK, end, 'latin1')
}
