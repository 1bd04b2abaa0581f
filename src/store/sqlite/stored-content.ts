/**
 * Content in the database: one row of facts, and all bytes one after the other in pieces of at most 1 MiB.
 *
 * What is read equals what was written. A content whose parts are shorter than its facts say throws: it is damaged.
 */
import type { Database } from 'better-sqlite3'
import type { StoredContent } from '../../mail/message.ts'

/** SQLite reads a blob whole: small pieces keep its memory bounded. */
const PIECE_BYTES = 1_024 * 1_024
/** See content_parts.part_key: room for 4 GiB of one content. */
const PIECES_PER_CONTENT = 4_096

/** An attachment's facts; its bytes are in the parts. */
interface AttachmentFacts {
  name: string
  contentType: string
  contentId: string | null
  sizeBytes: number
}

interface ContentRow {
  fromName: string | null
  fromAddress: string
  replyToName: string | null
  replyToAddress: string | null
  subject: string
  hasVariables: number
  htmlBytes: number | null
  textBytes: number | null
  attachments: string | null
}

/** Writes a content and returns its number. */
export function createContentWriter(database: Database): (content: StoredContent) => number {
  const addContent = database.prepare(`
    insert into contents
      (from_name, from_address, reply_to_name, reply_to_address, subject, has_variables, html_bytes, text_bytes,
      attachments)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?)`)
  const addPart = database.prepare<[number, Uint8Array]>('insert into content_parts (part_key, bytes) values (?, ?)')

  return (content) => {
    const html = content.html === null ? null : Buffer.from(content.html)
    const text = content.text === null ? null : Buffer.from(content.text)
    const facts = content.attachments.map(toFacts)
    const { lastInsertRowid } = addContent.run(
      content.from.name, content.from.address, content.replyTo?.name ?? null, content.replyTo?.address ?? null,
      content.subject, content.hasVariables ? 1 : 0, html?.length ?? null, text?.length ?? null,
      facts.length === 0 ? null : JSON.stringify(facts),
    )
    const contentId = Number(lastInsertRowid)
    const blocks = [html, text, ...content.attachments.map((attachment) => attachment.bytes)]
    let key = firstPartKey(contentId)
    for (const piece of piecesOf(blocks)) addPart.run(key++, piece)
    return contentId
  }
}

/** Reads a content, or undefined when there is none of this number. */
export function createContentReader(database: Database): (contentId: number) => StoredContent | undefined {
  const findContent = database.prepare<[number], ContentRow>(`
    select
      from_name as fromName, from_address as fromAddress, reply_to_name as replyToName,
      reply_to_address as replyToAddress, subject, has_variables as hasVariables, html_bytes as htmlBytes,
      text_bytes as textBytes, attachments
    from contents
    where content_id = ?`)
  const findParts = database
    .prepare<[number, number], Buffer>(
      'select bytes from content_parts where part_key between ? and ? order by part_key',
    )
    .pluck()

  return (contentId) => {
    const row = findContent.get(contentId)
    if (row === undefined) return undefined
    const first = firstPartKey(contentId)
    const parts = findParts.all(first, first + PIECES_PER_CONTENT - 1)
    const take = createTaker(parts.length === 1 && parts[0] !== undefined ? parts[0] : Buffer.concat(parts))
    return {
      from: { name: row.fromName, address: row.fromAddress },
      replyTo: row.replyToAddress === null ? null : { name: row.replyToName, address: row.replyToAddress },
      subject: row.subject,
      html: row.htmlBytes === null ? null : take(row.htmlBytes).toString('utf8'),
      text: row.textBytes === null ? null : take(row.textBytes).toString('utf8'),
      attachments: readFacts(row.attachments).map(({ sizeBytes, ...facts }) => ({ ...facts, bytes: take(sizeBytes) })),
      hasVariables: row.hasVariables === 1,
    }
  }
}

const firstPartKey = (contentId: number): number => contentId * PIECES_PER_CONTENT

const toFacts = (attachment: StoredContent['attachments'][number]): AttachmentFacts => ({
  name: attachment.name,
  contentType: attachment.contentType,
  contentId: attachment.contentId,
  sizeBytes: attachment.bytes.length,
})

const readFacts = (text: string | null): AttachmentFacts[] =>
  text === null ? [] : (JSON.parse(text) as AttachmentFacts[])

function* piecesOf(blocks: readonly (Uint8Array | null)[]): Generator<Uint8Array> {
  const bytes = Buffer.concat(blocks.filter((block) => block !== null))
  for (let start = 0; start < bytes.length; start += PIECE_BYTES) yield bytes.subarray(start, start + PIECE_BYTES)
}

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
