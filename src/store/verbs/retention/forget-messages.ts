/**
 * Messages go with everything that is about them when they have been final for long enough (store/README.md
 * "Retention").
 *
 * What stays: one with a webhook delivery that waits or is a dead letter; one whose content still has its bytes, since
 * the targets of its links are read from them first; the newest one, so that no number is given twice. Where a link of
 * it may still be followed, a trace stays in its place.
 */
import type { Database } from '../../engine/database.ts'
import { partKeys } from '../messages/stored-content.ts'
import { createContentRelease } from './content-use.ts'
import { walkOldest, type AgedRow } from './walk-oldest.ts'
import { oneColumn } from '../tools/statements.ts'
import type { Verb } from '../tools/verb-types.ts'

/** `at` is when it was accepted. */
interface OldRow extends AgedRow {
  id: Buffer
  state: string
  contentId: number
  laneId: number
  recipient: string
  finalAt: number | null
}

/** A message is about ten rows; the events of one that is removed are told by it. */
const ABOUT_A_MESSAGE = [
  'message_data',
  'bounces',
  'complaints',
  'engagement_counts',
  'engagement',
  'attempts',
  'transcripts',
  'reports',
] as const

export function createForgetMessages(database: Database): Verb<'forgetMessages'> {
  const findNext = database.prepare<[number], OldRow>(`
    select
      seq, id, state, content_id as contentId, lane_id as laneId, recipient, created_at as at,
      final_at as finalAt
    from messages
    where seq > ?
    order by seq
    limit 1`)
  const findNewest = database.prepare<[], number | null>('select max(seq) from messages').pluck()
  const hasBytes = oneColumn(database)<[number, number], 1>(`
    select 1 from content_parts where part_key between ? and ? limit 1`)
  const removeRow = database.prepare<[number]>('delete from messages where seq = ?')
  const removals = ABOUT_A_MESSAGE.map((table) =>
    database.prepare<[number]>(`delete from ${table} where message_seq = ?`),
  )
  const events = createEventRemoval(database)
  const leaveTrace = createTraceWriter(database)
  const release = createContentRelease(database)

  const mayGo = ({ seq, contentId, finalAt, state }: OldRow, before: number, newest: number): boolean => {
    const isFinal = state !== 'waiting' && state !== 'sending'
    if (!isFinal || finalAt === null || finalAt >= before || seq === newest) return false
    return hasBytes.get(...partKeys(contentId)) === undefined && events.mayGo(seq)
  }
  const remove = (row: OldRow, linksBefore: number): number => {
    const hasLinks = row.finalAt !== null && row.finalAt >= linksBefore
    let removed = 1 + events.remove(row.seq)
    if (hasLinks) leaveTrace(row)
    for (const removal of removals) removed += removal.run(row.seq).changes
    removeRow.run(row.seq)
    return removed + release(row.contentId)
  }

  return (request) => {
    const newest = findNewest.get() ?? 0
    return walkOldest(request, findNext, (row) =>
      mayGo(row, request.before, newest) ? remove(row, request.linksBefore) : 0,
    )
  }
}

/** Only where a link of ours was in the mail. */
function createTraceWriter(database: Database): (row: OldRow) => void {
  const find = database.prepare<
    [number, number],
    { variables: string | null; links: string | null; list: string | null }
  >(`
    select message_data.variables, kept_links.links, contents.unsubscribe_list as list
    from contents
    left join kept_links on kept_links.content_id = contents.content_id
    left join message_data on message_data.message_seq = ?
    where contents.content_id = ?`)
  const add = database.prepare<[Buffer, number, number, string, string | null, number]>(`
    insert into traces (id, content_id, lane_id, recipient, variables, ended_at)
    values (?, ?, ?, ?, ?, ?)
    on conflict do nothing`)
  return ({ seq, id, contentId, laneId, recipient, finalAt }) => {
    const facts = find.get(seq, contentId)
    if (facts === undefined || (facts.links === null && facts.list === null)) return
    // Values are only needed where a target has a placeholder.
    const variables = facts.links === null ? null : facts.variables
    add.run(id, contentId, laneId, recipient, variables, finalAt ?? 0)
  }
}

/**
 * Events of a message, or of none, go together with their webhook deliveries, when none of these waits or is a dead
 * letter: those have times of their own. The newest event stays, so that followers of the stream never meet its number
 * again.
 */
function createEventRemoval(database: Database) {
  const findEvents = oneColumn(database)<[number], number>(`
    select event_seq from events where message_seq = ? order by event_seq`)
  const one = createOneEventRemoval(database)
  return {
    mayGo: (messageSeq: number): boolean => findEvents.all(messageSeq).every(one.mayGo),
    /** Returns how many rows went. */
    remove: (messageSeq: number): number =>
      findEvents.all(messageSeq).reduce((sum, event) => sum + one.remove(event), 0),
  }
}

function createOneEventRemoval(database: Database) {
  const findNewest = database.prepare<[], number | null>('select max(event_seq) from events').pluck()
  const findHolder = oneColumn(database)<[number], 1>(`
    select 1 from webhook_deliveries where event_seq = ? and state in ('pending', 'failed') limit 1`)
  const findDeliveries = oneColumn(database)<[number], number>(`
    select delivery_seq from webhook_deliveries where event_seq = ?`)
  const removeAttempts = database.prepare<[number]>('delete from webhook_attempts where delivery_seq = ?')
  const removeDelivery = database.prepare<[number]>('delete from webhook_deliveries where delivery_seq = ?')
  const removeEvent = database.prepare<[number]>('delete from events where event_seq = ?')
  return {
    mayGo: (event: number): boolean => findHolder.get(event) === undefined && event !== findNewest.get(),
    remove(event: number): number {
      let removed = 1
      for (const delivery of findDeliveries.all(event)) {
        removed += removeAttempts.run(delivery).changes + removeDelivery.run(delivery).changes
      }
      removeEvent.run(event)
      return removed
    },
  }
}

/** Events of no message, such as those of domains, by their own time. */
export function createForgetEvents(database: Database): Verb<'forgetEvents'> {
  const findNext = database.prepare<[number], AgedRow>(`
    select event_seq as seq, at
    from events
    where message_seq is null and event_seq > ?
    order by event_seq
    limit 1`)
  const one = createOneEventRemoval(database)
  return (request) => walkOldest(request, findNext, ({ seq }) => (one.mayGo(seq) ? one.remove(seq) : 0))
}
