/**
 * A content on its way to the store thread: its facts as the row that they become, and all of its bytes in blocks of
 * memory that are moved, not copied (store/README.md "Decisions"). Never throws.
 */
import type { Attachment, StoredContent } from '../../mail/message.ts'

export interface PackedContent extends ContentRow {
  /** Html, text, attachments and raw, one after the other, cut anywhere; memory of their own. */
  blocks: Uint8Array<ArrayBuffer>[]
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
/** Long enough to be in no memory that small blocks share; shorter ones are copied into one block. */
const LEAST_OWN_BYTES = 64 * 1024

/** Long attachments and raw are given away: they are empty afterwards. */
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
    blocks: ownBlocks([htmlBlock, textBlock, ...attachments.map(({ bytes }) => bytes), raw]),
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

function ownBlocks(given: readonly (Uint8Array | null)[]): Uint8Array<ArrayBuffer>[] {
  const blocks: Uint8Array<ArrayBuffer>[] = []
  let short: Uint8Array[] = []
  const joinShort = (): void => {
    if (short.length > 0) blocks.push(joined(short))
    short = []
  }
  for (const block of given) {
    if (block === null) continue
    if (block.length < LEAST_OWN_BYTES || block.buffer === scratch.buffer) short.push(block)
    else {
      joinShort()
      blocks.push(block as Uint8Array<ArrayBuffer>)
    }
  }
  joinShort()
  return blocks
}

function joined(blocks: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const length = blocks.reduce((sum, block) => sum + block.length, 0)
  // Not of the pool that small buffers share: its memory cannot be moved.
  const bytes = Buffer.allocUnsafeSlow(length)
  let end = 0
  for (const block of blocks) {
    bytes.set(block, end)
    end += block.length
  }
  return bytes
}

/** Each once: several blocks may be parts of one. */
export function memoryOfContent({ blocks }: Pick<PackedContent, 'blocks'>): ArrayBuffer[] {
  return [...new Set(blocks.map(({ buffer }) => buffer))]
}

export function sizeOfBlocks({ blocks }: Pick<PackedContent, 'blocks'>): number {
  return blocks.reduce((sum, { length }) => sum + length, 0)
}
