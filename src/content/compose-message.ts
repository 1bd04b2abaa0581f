/**
 * MIME: header fields, bodies and attachments become the bytes of a message, unsigned.
 *
 * The same input gives the same bytes: boundaries come from `seed`, and the caller gives Date and Message-ID. Only CRLF
 * ends lines, no line has more than 998 octets, and there is no NUL: text is quoted-printable or base64, attachments
 * are base64. RFC 5322 §2.1, RFC 2045, RFC 2046 §5.
 */
import { hash } from 'node:crypto'
import { BOUNDARY_CHARACTERS } from './mime-tree.ts'
import type { BodyEncoding, MimeTreeOf } from './mime-tree.ts'
import { quotedPrintableIfShort } from './quoted-printable.ts'
import { foldBase64 } from './transfer-encoding.ts'

export interface MessageParts {
  /** Header fields, each with its CRLF; MIME-Version and Content-* are added here. */
  fields: readonly string[]
  /** null or '': no such part. */
  html: string | null
  text: string | null
  /** Of the content. */
  treeOf: MimeTreeOf
  /** Makes the boundaries: the message id. */
  seed: string
}

interface EncodedBody {
  encoding: BodyEncoding | null
  bytes: Buffer
}

export async function composeMessage({ fields, html, text, treeOf, seed }: MessageParts): Promise<Buffer> {
  const bodies = { html: encodeBody(html), text: encodeBody(text) }
  const tree = await treeOf({ text: bodies.text.encoding, html: bodies.html.encoding })
  const boundary = Buffer.from(hash('sha256', seed, 'hex').slice(0, BOUNDARY_CHARACTERS), 'latin1')
  const pieces = tree.map((piece) => {
    if (typeof piece !== 'string') return piece
    return piece === 'boundary' ? boundary : bodies[piece].bytes
  })
  return Buffer.concat([Buffer.from(fields.join('')), ...pieces])
}

const NO_BODY: EncodedBody = { encoding: null, bytes: Buffer.alloc(0) }

function encodeBody(text: string | null): EncodedBody {
  if (text === null || text === '') return NO_BODY
  const bytes = Buffer.from(text)
  const readable = quotedPrintableIfShort(bytes)
  if (readable !== undefined) return { encoding: 'quoted-printable', bytes: readable }
  // Any line end, also a lone CR or LF.
  const lines = Buffer.from(text.replace(/\r\n|\r|\n/g, '\r\n'))
  return { encoding: 'base64', bytes: Buffer.from(foldBase64(lines.toString('base64')), 'latin1') }
}
