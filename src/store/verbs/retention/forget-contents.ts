/**
 * Bodies and attachments go when every message of their content is final and its time is over (store/README.md
 * "Retention"). In two verbs, since between them the targets of tracked links are read out of the html; the second
 * looks again at what it deletes. Contents are met in the order of their acceptance: behind the first that is too young
 * nothing can be over.
 */
import type { Database, RunResult } from '../../engine/database.ts'
import type { OverdueContent } from '../../records/retention-records.ts'
import { firstPartKey, PIECES_PER_CONTENT } from '../messages/stored-content.ts'
import { createBytesRemoval, createContentUse, isOver, createContentRelease, rowsGone } from './content-use.ts'
import { createSlice, isTooYoung, walkOldest, type AgedRow } from './walk-oldest.ts'
import { oneColumn } from '../tools/statements.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'

export function createContentReads(database: Database) {
  const findPart = oneColumn(database)<[number], number>(`
    select part_key from content_parts where part_key >= ? order by part_key limit 1`)
  const findFacts = database.prepare<[number], { hasVariables: number; tracksClicks: number }>(`
    select has_variables as hasVariables, tracks_clicks as tracksClicks from contents where content_id = ?`)
  const useOf = createContentUse(database)
  const findLinks = database.prepare<[number], string>('select links from kept_links where content_id = ?').pluck()

  return {
    overdueContents({ before, now, after, limit }) {
      const contents: OverdueContent[] = []
      const slice = createSlice(limit)
      let contentId = after
      while (slice.hasRoom()) {
        const part = findPart.get(firstPartKey(contentId + 1))
        if (part === undefined) return { contents, next: null }
        contentId = Math.floor(part / PIECES_PER_CONTENT)
        const use = useOf(contentId)
        slice.note(1 + use.messages)
        if (use.createdAt !== null && isTooYoung(use.createdAt, { before, now })) return { contents, next: null }
        if (!isOver(use, before)) continue
        const { hasVariables = 0, tracksClicks = 0 } = findFacts.get(contentId) ?? {}
        contents.push({ contentId, hasVariables: hasVariables === 1, tracksClicks: tracksClicks === 1 })
      }
      return { contents, next: contentId }
    },
    keptLinks: (contentId) => findLinks.get(contentId) ?? null,
  } satisfies SomeVerbs
}

/** Those that no time is left for are the caller's to give again. */
export function createForgetContents(database: Database): Verb<'forgetContents'> {
  const keepLinks = database.prepare<[number, string]>(`
    insert into kept_links (content_id, links) values (?, ?) on conflict do nothing`)
  const useOf = createContentUse(database)
  const removeBytes = createBytesRemoval(database)
  return ({ before, contents }) => {
    const slice = createSlice(contents.length)
    const removed: RunResult[] = []
    let looked = 0
    for (const { contentId, links } of contents) {
      if (!slice.hasRoom()) break
      looked += 1
      if (!isOver(useOf(contentId), before)) continue
      if (links !== null) keepLinks.run(contentId, links)
      removed.push(removeBytes(contentId))
    }
    return { removed: rowsGone(removed), looked }
  }
}

/**
 * What goes before its message does, or after it. Each from its oldest on: behind the first that is too young nothing
 * is over.
 */
export function createPartRemovals(database: Database) {
  const findTranscript = database.prepare<[number], AgedRow & { finalAt: number | null }>(`
    select transcript_seq as seq, transcripts.at, messages.final_at as finalAt
    from transcripts
    cross join messages on messages.seq = transcripts.message_seq
    where transcript_seq > ?
    order by transcript_seq
    limit 1`)
  const removeTranscript = database.prepare<[number]>('delete from transcripts where transcript_seq = ?')
  const findTrace = database.prepare<[number], AgedRow & { contentId: number }>(`
    select trace_seq as seq, content_id as contentId, ended_at as at
    from traces
    where trace_seq > ?
    order by trace_seq
    limit 1`)
  const removeTrace = database.prepare<[number]>('delete from traces where trace_seq = ?')
  const release = createContentRelease(database)

  return {
    /** Of messages that are final since before this time. */
    forgetTranscripts: (request) =>
      walkOldest(request, findTranscript, ({ seq, finalAt }) =>
        finalAt !== null && finalAt < request.before ? removeTranscript.run(seq).changes : 0,
      ),
    /** Traces of messages that were final before this time, and the contents that nothing else needs. */
    forgetTraces: (request) =>
      walkOldest(request, findTrace, ({ seq, contentId }) => rowsGone([removeTrace.run(seq), ...release(contentId)])),
  } satisfies SomeVerbs
}

/** Targets of contents whose messages are still there: a click on them is answered 410 from then on. */
export function createForgetLinks(database: Database): Verb<'forgetLinks'> {
  const findNext = oneColumn(database)<[number], number>(`
    select content_id from kept_links where content_id > ? order by content_id limit 1`)
  const remove = database.prepare<[number]>('delete from kept_links where content_id = ?')
  const findUsed = oneColumn(database)<[number], number | null>(`
    select min(content_id) from messages where content_id > ?`)
  const useOf = createContentUse(database)
  return ({ before, now, after, limit }) => {
    const slice = createSlice(limit)
    let removed = 0
    let position = after
    while (slice.hasRoom()) {
      const contentId = findNext.get(position)
      if (contentId === undefined) return { removed, next: null }
      position = contentId
      const use = useOf(contentId)
      slice.note(1 + use.messages)
      if (use.createdAt !== null && isTooYoung(use.createdAt, { before, now })) return { removed, next: null }
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
