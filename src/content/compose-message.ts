/**
 * MIME: header fields, bodies and attachments become the bytes of a message, unsigned (content/README.md "Rendering and
 * DKIM"). The same input gives the same bytes. Only CRLF ends lines, none has more than 998 octets or begins with a
 * dot, and there is no NUL. RFC 5322 §2.1, RFC 2045, RFC 2046 §5.
 */
import { hash } from 'node:crypto'
import { hasText, toUtf8, writeBase64, writeReadable, type BodyText } from './mime/body-text.ts'
import type { UnsignedMessage } from './mime/dkim.ts'
import { BOUNDARY_CHARACTERS, type MimeShape, type MimeTree, type MimeTreeOf } from './mime/mime-tree.ts'
import { mostEscapedBytes, mostQuotedPrintableBytes } from './mime/quoted-printable.ts'

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

interface Writing {
  header: Buffer
  boundary: string
  bodies: { text: BodyText; html: BodyText }
  shape: MimeShape
  room: number
}

/** Longer messages have memory of their own. */
const SCRATCH_BYTES = 256 * 1024
/** Each message is written here first, and copied out when its length is known. */
const scratch = Buffer.allocUnsafe(SCRATCH_BYTES)
/** And its texts in UTF-8 here. */
const textScratch = { text: Buffer.allocUnsafe(SCRATCH_BYTES), html: Buffer.allocUnsafe(SCRATCH_BYTES) }
/** Of a longer text the white space is not noted: it may be all white space, and the list eight times as long. */
const MOST_NOTED_BYTES = 256 * 1024

export async function composeMessage(parts: MessageParts): Promise<UnsignedMessage> {
  const { fields, html, text, treeOf, seed, room } = parts
  const bodies = { text: text ?? [], html: html ?? [] }
  const header = Buffer.from(fields.join(''))
  const boundary = hash('sha256', seed).slice(0, BOUNDARY_CHARACTERS)
  let shape: MimeShape = {
    text: hasText(bodies.text) ? 'quoted-printable' : null,
    html: hasText(bodies.html) ? 'quoted-printable' : null,
  }
  for (;;) {
    const written = writeMessage(await treeOf(shape), { header, boundary, bodies, shape, room })
    if (typeof written !== 'string') return written
    shape = { ...shape, [written]: 'base64' }
  }
}

/** A name: this text is shorter as base64. */
function writeMessage(
  tree: MimeTree,
  { header, boundary, bodies, shape, room }: Writing,
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
      end += piece.copy(target, end)
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
  const buffer = Buffer.allocUnsafe(end)
  target.copy(buffer, room, room, end)
  return { buffer, start: room, bodyStart, runs }
}
