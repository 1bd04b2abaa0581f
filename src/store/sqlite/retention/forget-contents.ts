/**
 * Bodies and attachments go when every message of their content is final and its time is over (store/README.md
 * "Retention").
 *
 * In two verbs, since between them somebody reads the targets of tracked links out of the html: those are kept longer.
 * The second one looks again at what it deletes. Contents are met in the order of their numbers, which is that of their
 * acceptance: behind the first one that was accepted too late nothing can be over.
 */
import type { Database } from 'better-sqlite3'
import type {
  ForgetContentsRequest,
  ForgetRequest,
  ForgottenContents,
  OverdueContent,
  OverdueContents,
} from '../../records/retention-records.ts'
import { firstPartKey, PIECES_PER_CONTENT } from '../messages/stored-content.ts'
import { createBytesRemoval, createContentUse, isOver } from './content-use.ts'
import { createSlice } from './slice.ts'

interface ContentFacts {
  hasVariables: number
  tracksClicks: number
}

export function createOverdueContents(database: Database): (request: ForgetRequest) => OverdueContents {
  const findPart = database
    .prepare<[number], number>('select part_key from content_parts where part_key >= ? order by part_key limit 1')
    .pluck()
  const findFacts = database.prepare<[number], ContentFacts>(`
    select has_variables as hasVariables, tracks_clicks as tracksClicks from contents where content_id = ?`)
  const useOf = createContentUse(database)

  return ({ before, after, limit }) => {
    const contents: OverdueContent[] = []
    const slice = createSlice(limit)
    let contentId = after
    while (slice.hasRoom()) {
      const part = findPart.get(firstPartKey(contentId + 1))
      if (part === undefined) return { contents, next: null }
      contentId = Math.floor(part / PIECES_PER_CONTENT)
      const use = useOf(contentId)
      slice.note(1 + use.messages)
      if (use.createdAt !== null && use.createdAt >= before) return { contents, next: null }
      if (!isOver(use, before)) continue
      const { hasVariables = 0, tracksClicks = 0 } = findFacts.get(contentId) ?? {}
      contents.push({ contentId, hasVariables: hasVariables === 1, tracksClicks: tracksClicks === 1 })
    }
    return { contents, next: contentId }
  }
}

/** Those that no time is left for are the caller's to give again. */
export function createForgetContents(database: Database): (request: ForgetContentsRequest) => ForgottenContents {
  const keepLinks = database.prepare<[number, string]>(
    'insert into kept_links (content_id, links) values (?, ?) on conflict do nothing',
  )
  const useOf = createContentUse(database)
  const removeBytes = createBytesRemoval(database)
  return ({ before, contents }) => {
    const slice = createSlice(contents.length)
    let removed = 0
    let looked = 0
    for (const { contentId, links } of contents) {
      if (!slice.hasRoom()) break
      looked += 1
      if (!isOver(useOf(contentId), before)) continue
      if (links !== null) keepLinks.run(contentId, links)
      removed += removeBytes(contentId)
    }
    return { removed, looked }
  }
}

/** The targets of a content whose bytes are gone, or null. */
export function createKeptLinks(database: Database): (contentId: number) => string | null {
  const find = database.prepare<[number], string>('select links from kept_links where content_id = ?').pluck()
  return (contentId) => find.get(contentId) ?? null
}
