/**
 * Who still needs a content: its messages and, when they are gone, their traces. What nobody needs goes whole.
 *
 * The newest content stays in any case, so that its number is not given again: readers keep what they know by number.
 */
import type { Database, RunResult } from '../../engine/database.ts'
import { createSubjectRemoval } from '../lookups/subjects.ts'
import { partKeys, recordFrom } from '../messages/stored-content.ts'
import { askAhead } from '../tools/statements.ts'

interface ContentUse {
  messages: number
  /** Of them, those that are not final. */
  open: number
  /** When the last one became final. */
  finalAt: number | null
  /** When the first one was accepted. */
  createdAt: number | null
}

export function createContentUse(database: Database): (contentId: number) => ContentUse {
  const find = database.prepare<[number], ContentUse>(`
    select
      count(*) as messages, coalesce(sum(iif(state in ('waiting', 'sending'), 1, 0)), 0) as "open", max(final_at) as finalAt,
      min(created_at) as createdAt
    from messages
    where content_id = ?`)
  return (contentId) => find.get(contentId) ?? { messages: 0, open: 0, finalAt: null, createdAt: null }
}

/** Every message of it is final since before this time. */
export function isOver({ open, finalAt }: ContentUse, before: number): boolean {
  return open === 0 && (finalAt === null || finalAt < before)
}

/** How many rows went. Asked behind the last of them: until then PostgreSQL is sent what waits with the next question. */
export const rowsGone = (runs: readonly RunResult[]): number => runs.reduce((sum, { changes }) => sum + changes, 0)

/** Deletes the bytes of a content. */
export function createBytesRemoval(database: Database): (contentId: number) => RunResult {
  const remove = database.prepare<[number, number]>('delete from content_parts where part_key between ? and ?')
  return (contentId) => remove.run(...partKeys(contentId))
}

/** Deletes what a content is found by, when what is returned is called; its own list of tags is the caller's. */
export function createTagsRemoval(database: Database): (contentId: number) => () => RunResult[] {
  const find = database.prepare<[number], string | null>('select tags from contents where content_id = ?').pluck()
  const remove = database.prepare<[string, string, number]>(`
    delete from content_tags where key = ? and value = ? and content_id = ?`)
  return (contentId) => {
    const tags = askAhead(find, contentId)
    return () =>
      Object.entries(recordFrom<string>(tags()[0] ?? null)).map(([key, value]) => remove.run(key, value, contentId))
  }
}

/** Called when a message or a trace of a content has gone; returns what went with it. */
export function createContentRelease(database: Database): (contentId: number) => RunResult[] {
  const hasMessage = database.prepare<[number], 1>('select 1 from messages where content_id = ? limit 1').pluck()
  const hasTrace = database.prepare<[number], 1>('select 1 from traces where content_id = ? limit 1').pluck()
  const findNewest = database.prepare<[], number | null>('select max(content_id) from contents').pluck()
  const removeTags = createTagsRemoval(database)
  const removeBatch = database.prepare<[number]>('delete from batches where content_id = ?')
  const removeLinks = database.prepare<[number]>('delete from kept_links where content_id = ?')
  const removeContent = database.prepare<[number]>('delete from contents where content_id = ?')
  // What links need stays: the list, the customer's address for it, whether there are values.
  const slim = database.prepare<[number]>(`
    update contents
    set from_name = null, from_address = '', reply_to = null, subject = '',
      attachments = null, tags = null, metadata = null, headers = null, addressees = null
    where content_id = ?`)
  const removeBytes = createBytesRemoval(database)
  const removeSubject = createSubjectRemoval(database)

  return (contentId) => {
    const message = askAhead(hasMessage, contentId)
    const newest = askAhead(findNewest)
    const trace = askAhead(hasTrace, contentId)
    const forgetTags = removeTags(contentId)
    if (message().length > 0 || contentId === newest()[0]) return []
    const isTraced = trace().length > 0
    removeSubject(contentId)
    const removed = [...forgetTags(), removeBatch.run(contentId)]
    if (isTraced) {
      slim.run(contentId)
      return removed
    }
    return [...removed, removeBytes(contentId), removeLinks.run(contentId), removeContent.run(contentId)]
  }
}
