/**
 * Content in the database: one row of facts, which also holds what all messages of its request share, and all bytes one
 * after the other in pieces of at most 1 MiB. A content whose parts are shorter than its facts say throws: it is
 * damaged.
 */
import { freeMemory } from '../../../base/free-memory.ts'
import type { Database } from '../../engine/database.ts'
import type { Mailbox, StoredContent } from '../../../mail/message.ts'
import type { AttachmentFacts, ContentRow, PackedContent } from '../../records/packed-content.ts'
import { comparableAddress } from '../tools/stored-address.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import { oneColumn } from '../tools/statements.ts'
import type { Verb } from '../tools/verb-types.ts'

/** SQLite reads a blob whole: small pieces keep its memory bounded. */
const PIECE_BYTES = 1_024 * 1_024
/** See content_parts.part_key: room for 4 GiB of one content. */
export const PIECES_PER_CONTENT = 4_096

/** What the messages of one request have in common beside what they say. */
interface RequestFacts {
  isTest: boolean
  /** Only a time to come. */
  sendAt: number | null
  retryOf: string | null
}

/** Writes a content and returns its number. */
export function createContentWriter(database: Database): (content: PackedContent, facts: RequestFacts) => number {
  const addContent = database.prepare(`
    insert into contents
      (from_name, from_address, reply_to, subject, has_variables, html_bytes, text_bytes,
      attachments, raw_bytes, is_test, send_at, retry_of, tracks_opens, tracks_clicks, unsubscribe_list,
      unsubscribe_url, tags, metadata, headers, addressees)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
  const addPart = database.prepare<[number, Uint8Array]>('insert into content_parts (part_key, bytes) values (?, ?)')
  const addTag = database.prepare<[string, string, number]>(`
    insert into content_tags (key, value, content_id) values (?, ?, ?)`)

  return (row, { isTest, sendAt, retryOf }) => {
    const { lastInsertRowid } = addContent.run(
      row.fromName,
      comparableAddress(row.fromAddress),
      row.replyTo,
      row.subject,
      row.hasVariables,
      row.htmlBytes,
      row.textBytes,
      row.attachments,
      row.rawBytes,
      Number(isTest),
      sendAt,
      retryOf === null ? null : storedIdentifier('msg', retryOf),
      row.tracksOpens,
      row.tracksClicks,
      row.unsubscribeList,
      row.unsubscribeUrl,
      row.tags,
      row.metadata,
      row.headers,
      row.addressees,
    )
    const contentId = Number(lastInsertRowid)
    for (const [key, value] of Object.entries(recordFrom<string>(row.tags))) addTag.run(key, value, contentId)
    let key = firstPartKey(contentId)
    for (const piece of piecesOf(row.blocks)) addPart.run(key++, piece)
    return contentId
  }
}

/** A content by its number; ContentRow. */
export const CONTENT_QUERY = `
  select
    from_name as fromName, from_address as fromAddress, reply_to as replyTo, subject, has_variables as hasVariables,
    html_bytes as htmlBytes, text_bytes as textBytes, attachments, raw_bytes as rawBytes, tracks_opens as tracksOpens,
    tracks_clicks as tracksClicks, unsubscribe_list as unsubscribeList, unsubscribe_url as unsubscribeUrl, tags,
    metadata, headers, addressees
  from contents
  where content_id = ?`
/** The bytes of a content, by `partKeys`. */
export const PARTS_QUERY = 'select bytes, part_key from content_parts where part_key between ? and ? order by part_key'

/** Reads a content, or undefined when there is none of this number, or its bytes were removed. */
export function createContentReader(database: Database): (contentId: number) => StoredContent | undefined {
  const findContent = database.prepare<[number], ContentRow>(CONTENT_QUERY)
  const findParts = oneColumn(database)<[number, number], Buffer>(PARTS_QUERY)
  return (contentId) => {
    const row = findContent.get(contentId)
    return row === undefined ? undefined : contentFrom(row, findParts.iterate(...partKeys(contentId)))
  }
}

/** Of all bytes of a content. */
export function sizeOfContent({ htmlBytes, textBytes, attachments, rawBytes }: ContentRow): number {
  const sizes = [htmlBytes, textBytes, ...readFacts(attachments).map(({ sizeBytes }) => sizeBytes), rawBytes]
  return sizes.reduce<number>((sum, size) => sum + (size ?? 0), 0)
}

/** undefined: its bytes were removed. */
export function contentFrom(row: ContentRow, parts: Iterable<Buffer>): StoredContent | undefined {
  const size = sizeOfContent(row)
  const bytes = bytesOf(parts, size)
  if (bytes.length === 0 && size > 0) return undefined
  const take = createTaker(bytes)
  return {
    from: { name: row.fromName, address: row.fromAddress },
    replyTo: row.replyTo === null ? [] : (JSON.parse(row.replyTo) as Mailbox[]),
    subject: row.subject,
    html: row.htmlBytes === null ? null : take(row.htmlBytes).toString('utf8'),
    text: row.textBytes === null ? null : take(row.textBytes).toString('utf8'),
    attachments: readFacts(row.attachments).map(({ sizeBytes, ...facts }) => ({ ...facts, bytes: take(sizeBytes) })),
    raw: row.rawBytes === null ? null : take(row.rawBytes),
    hasVariables: row.hasVariables === 1,
    addressees: row.addressees === null ? null : (JSON.parse(row.addressees) as { to: Mailbox; cc: Mailbox[] }),
    headers: row.headers === null ? [] : (JSON.parse(row.headers) as [string, string][]),
    tags: recordFrom(row.tags),
    metadata: recordFrom(row.metadata),
    tracking: { opens: row.tracksOpens === 1, clicks: row.tracksClicks === 1 },
    unsubscribe: row.unsubscribeList === null ? null : { list: row.unsubscribeList, url: row.unsubscribeUrl },
  }
}

/** Reads only what has links in it; both bodies are the first of their parts. */
export function createLinkHtmlReader(database: Database): Verb<'linkHtml'> {
  const findSizes = database.prepare<[number], { htmlBytes: number | null; rawBytes: number | null }>(`
    select html_bytes as htmlBytes, raw_bytes as rawBytes from contents where content_id = ?`)
  const findParts = oneColumn(database)<[number, number], Buffer>(`
    select bytes from content_parts where part_key between ? and ? order by part_key`)
  return (contentId) => {
    const row = findSizes.get(contentId)
    if (row === undefined) return null
    const size = row.rawBytes ?? row.htmlBytes ?? 0
    const first = firstPartKey(contentId)
    const bytes = bytesOf(findParts.iterate(first, first + Math.ceil(size / PIECE_BYTES)), size)
    // Bodies are removed before their facts.
    if (bytes.length < size) return null
    return row.rawBytes === null ? { html: bytes.toString('utf8'), raw: null } : { html: null, raw: bytes }
  }
}

/** An object of a ContentRow. */
export const recordFrom = <Value>(text: string | null): Record<string, Value> =>
  text === null ? {} : (JSON.parse(text) as Record<string, Value>)

/** First and last key of a content's parts. */
export const partKeys = (contentId: number): [number, number] => [
  firstPartKey(contentId),
  firstPartKey(contentId + 1) - 1,
]

export const firstPartKey = (contentId: number): number => contentId * PIECES_PER_CONTENT

const readFacts = (text: string | null): AttachmentFacts[] =>
  text === null ? [] : (JSON.parse(text) as AttachmentFacts[])

/** Each but the last is full, wherever the blocks end. */
function* piecesOf(blocks: PackedContent['blocks']): Generator<Buffer> {
  let begun: Uint8Array[] = []
  let missing = PIECE_BYTES
  for (const block of blocks) {
    for (let start = 0; start < block.length;) {
      const part = block.subarray(start, start + missing)
      start += part.length
      missing -= part.length
      begun.push(part)
      if (missing > 0) continue
      yield joined(begun)
      begun = []
      missing = PIECE_BYTES
    }
  }
  if (begun.length > 0) yield joined(begun)
}

function joined(parts: readonly Uint8Array[]): Buffer {
  const [first] = parts
  if (parts.length > 1 || first === undefined) return Buffer.concat(parts)
  return Buffer.from(first.buffer, first.byteOffset, first.length)
}

/** The first `size` bytes of these parts, or as many as there are. A large content is in memory once. */
function bytesOf(parts: Iterable<Buffer>, size: number): Buffer {
  let bytes: Buffer | undefined
  let length = 0
  for (const part of parts) {
    if (part.length >= size) return part.subarray(0, size)
    bytes ??= Buffer.allocUnsafeSlow(size)
    length += part.copy(bytes, length)
    freeMemory(part)
  }
  return bytes?.subarray(0, length) ?? NOTHING
}

const NOTHING = Buffer.alloc(0)

/** Hands out the bytes from front to back. */
function createTaker(bytes: Buffer): (length: number) => Buffer {
  let position = 0
  return (length) => {
    const end = position + length
    if (end > bytes.length) throw new RangeError(`content ends after ${bytes.length} bytes, ${end} were stored`)
    const taken = bytes.subarray(position, end)
    position = end
    return taken
  }
}
