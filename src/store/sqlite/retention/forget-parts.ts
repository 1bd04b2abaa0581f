/**
 * What goes before its message does, or after it: transcripts, kept targets of links, traces. Each from its oldest on;
 * behind the first that is too young nothing can be over.
 */
import type { Database } from 'better-sqlite3'
import type { ForgetRequest, ForgetStep } from '../../records/retention-records.ts'
import { createContentRelease, createContentUse, isOver } from './content-use.ts'
import { createSlice } from './slice.ts'
import { walkOldest, type AgedRow } from './walk-oldest.ts'

/** The dialogues of messages that are final since before this time. */
export function createForgetTranscripts(database: Database): (request: ForgetRequest) => ForgetStep {
  const findNext = database.prepare<[number], AgedRow & { finalAt: number | null }>(`
    select transcript_seq as seq, transcripts.at, messages.final_at as finalAt
    from transcripts
    cross join messages on messages.seq = transcripts.message_seq
    where transcript_seq > ?
    order by transcript_seq
    limit 1`)
  const remove = database.prepare<[number]>('delete from transcripts where transcript_seq = ?')
  return (request) =>
    walkOldest(
      request,
      (after) => findNext.get(after),
      ({ seq, finalAt }) => (finalAt !== null && finalAt < request.before ? remove.run(seq).changes : 0),
    )
}

/** Targets of contents whose messages are still there: a click on them is answered 410 from then on. */
export function createForgetLinks(database: Database): (request: ForgetRequest) => ForgetStep {
  const findNext = database
    .prepare<[number], number>('select content_id from kept_links where content_id > ? order by content_id limit 1')
    .pluck()
  const remove = database.prepare<[number]>('delete from kept_links where content_id = ?')
  const findUsed = database
    .prepare<[number], number | null>('select min(content_id) from messages where content_id > ?')
    .pluck()
  const useOf = createContentUse(database)
  return ({ before, after, limit }) => {
    const slice = createSlice(limit)
    let removed = 0
    let position = after
    while (slice.hasRoom()) {
      const contentId = findNext.get(position)
      if (contentId === undefined) return { removed, next: null }
      position = contentId
      const use = useOf(contentId)
      slice.note(1 + use.messages)
      if (use.createdAt !== null && use.createdAt >= before) return { removed, next: null }
      if (use.messages === 0) {
        // They belong to traces, and go with the last of these; there may be a year of them.
        const used = findUsed.get(contentId) ?? null
        if (used === null) return { removed, next: null }
        position = used - 1
        continue
      }
      if (isOver(use, before)) removed += remove.run(contentId).changes
    }
    return { removed, next: position }
  }
}

/** Traces of messages that were final before this time, and the contents that nothing else needs. */
export function createForgetTraces(database: Database): (request: ForgetRequest) => ForgetStep {
  const findNext = database.prepare<[number], AgedRow & { contentId: number }>(`
    select trace_seq as seq, content_id as contentId, ended_at as at
    from traces
    where trace_seq > ?
    order by trace_seq
    limit 1`)
  const remove = database.prepare<[number]>('delete from traces where trace_seq = ?')
  const release = createContentRelease(database)
  // In the order of their removal, which is that of their ends as far as it matters here.
  return (request) =>
    walkOldest(
      request,
      (after) => findNext.get(after),
      ({ seq, contentId }) => remove.run(seq).changes + release(contentId),
    )
}
