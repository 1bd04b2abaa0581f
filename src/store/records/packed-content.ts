/**
 * A content on its way to the store thread: its facts as the row that they become, and all of its bytes in one block of
 * memory that is moved, not copied (store/README.md "Decisions"). Pure; never throws.
 */
import type { Attachment, StoredContent } from '../../mail/message.ts'

export interface PackedContent extends ContentRow {
  /** Html, text, attachments and raw, one after the other; memory of its own. */
  bytes: Uint8Array<ArrayBuffer>
}

/** The facts of a content as the database has them: flags as 0 or 1; lists and objects as JSON, null for empty ones. */
export interface ContentRow {
  fromName: string | null
  fromAddress: string
  replyTo: string | null
  subject: string
  hasVariables: number
  /** In UTF-8; null: there is none. */
  htmlBytes: number | null
  textBytes: number | null
  rawBytes: number | null
  /** AttachmentFacts[]. */
  attachments: string | null
  tracksOpens: number
  tracksClicks: number
  unsubscribeList: string | null
  unsubscribeUrl: string | null
  tags: string | null
  metadata: string | null
  headers: string | null
  addressees: string | null
}

/** An attachment without its bytes. */
export interface AttachmentFacts extends Omit<Attachment, 'bytes'> {
  sizeBytes: number
}

/** Texts that may be longer in UTF-8 have memory of their own. */
const SCRATCH_BYTES = 512 * 1024
/** Texts are written here first: to count their bytes before takes as long as to write them several times. */
const scratch = Buffer.allocUnsafeSlow(SCRATCH_BYTES)
/** A UTF-16 unit in UTF-8. */
const MOST_BYTES_PER_UNIT = 3

export function packContent(content: StoredContent): PackedContent {
  const { from, replyTo, html, text, attachments, raw, tracking, unsubscribe, addressees } = content
  const htmlBlock = html === null ? null : toBytes(html, scratch)
  const textBlock = text === null ? null : toBytes(text, scratch.subarray(htmlBlock?.length ?? 0))
  return {
    fromName: from.name,
    fromAddress: from.address,
    replyTo: textUnlessEmpty(replyTo),
    subject: content.subject,
    hasVariables: Number(content.hasVariables),
    htmlBytes: htmlBlock?.length ?? null,
    textBytes: textBlock?.length ?? null,
    rawBytes: raw?.length ?? null,
    attachments: textUnlessEmpty(attachments.map(({ bytes, ...rest }) => ({ ...rest, sizeBytes: bytes.length }))),
    tracksOpens: Number(tracking.opens),
    tracksClicks: Number(tracking.clicks),
    unsubscribeList: unsubscribe?.list ?? null,
    unsubscribeUrl: unsubscribe?.url ?? null,
    tags: textUnlessEmpty(content.tags),
    metadata: textUnlessEmpty(content.metadata),
    headers: textUnlessEmpty(content.headers),
    addressees: addressees === null ? null : JSON.stringify(addressees),
    bytes: joined([htmlBlock, textBlock, ...attachments.map(({ bytes }) => bytes), raw]),
  }
}

/** JSON of a list or an object, or null when nothing is in it. */
export const textUnlessEmpty = (value: object): string | null =>
  Object.keys(value).length === 0 ? null : JSON.stringify(value)

/** In `target` where that has the room. */
function toBytes(text: string, target: Buffer): Buffer {
  if (text.length * MOST_BYTES_PER_UNIT > target.length) return Buffer.from(text)
  return target.subarray(0, target.write(text))
}

function joined(blocks: readonly (Uint8Array | null)[]): Uint8Array<ArrayBuffer> {
  const length = blocks.reduce((sum, block) => sum + (block?.length ?? 0), 0)
  // Not of the pool that small buffers share: its memory cannot be moved.
  const bytes = Buffer.allocUnsafeSlow(length)
  let end = 0
  for (const block of blocks) {
    if (block === null) continue
    bytes.set(block, end)
    end += block.length
  }
  return bytes
}
