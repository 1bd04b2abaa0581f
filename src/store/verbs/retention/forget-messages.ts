/**
 * Messages go with everything that is about them when they have been final for long enough (store/README.md
 * "Retention").
 *
 * What stays: one with a webhook delivery that waits or is a dead letter; one whose content still has its bytes, since
 * the targets of its links are read from them first; the newest one, so that no number is given twice. Where a link of
 * it may still be followed, a trace stays in its place.
 */
import type { Database, RunResult } from '../../engine/database.ts'
import { partKeys } from '../messages/stored-content.ts'
import { createContentRelease, rowsGone } from './content-use.ts'
import { walkOldest, type AgedRow } from './walk-oldest.ts'
import { askAhead, oneColumn } from '../tools/statements.ts'
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
  const findEvents = oneColumn(database)<[number], number>(`
    select event_seq from events where message_seq = ? order by event_seq`)
  const events = createEventRemoval(database)
  const askTrace = createTraceWriter(database)
  const release = createContentRelease(database)

  /** The events that go with it; null: it stays. */
  const goingWith = ({ seq, contentId, finalAt, state }: OldRow, before: number, newest: number): number[] | null => {
    const isFinal = state !== 'waiting' && state !== 'sending'
    if (!isFinal || finalAt === null || finalAt >= before || seq === newest) return null
    const bytes = askAhead(hasBytes, ...partKeys(contentId))
    const found = askAhead(findEvents, seq)
    return bytes().length === 0 && events.mayGo(found()) ? found() : null
  }
  const remove = (row: OldRow, going: number[], linksBefore: number): number => {
    const hasLinks = row.finalAt !== null && row.finalAt >= linksBefore
    const leaveTrace = hasLinks ? askTrace(row) : () => {}
    const removed = events.remove(going)
    leaveTrace()
    removed.push(...removals.map((removal) => removal.run(row.seq)), removeRow.run(row.seq))
    return rowsGone([...removed, ...release(row.contentId)])
  }

  return (request) => {
    const newest = findNewest.get() ?? 0
    return walkOldest(request, findNext, (row) => {
      const going = goingWith(row, request.before, newest)
      return going === null ? 0 : remove(row, going, request.linksBefore)
    })
  }
}

/** Only where a link of ours was in the mail. What is returned leaves it. */
function createTraceWriter(database: Database): (row: OldRow) => () => void {
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
    const asked = askAhead(find, seq, contentId)
    return () => {
      const [facts] = asked()
      if (facts === undefined || (facts.links === null && facts.list === null)) return
      // Values are only needed where a target has a placeholder.
      const variables = facts.links === null ? null : facts.variables
      add.run(id, contentId, laneId, recipient, variables, finalAt ?? 0)
    }
  }
}

/**
 * Events of a message, or of none, go together with their webhook deliveries, when none of these waits or is a dead
 * letter: those have times of their own. The newest event stays, so that followers of the stream never meet its number
 * again.
 */
function createEventRemoval(database: Database) {
  const findNewest = database.prepare<[], number | null>('select max(event_seq) from events').pluck()
  const findHolder = oneColumn(database)<[number], 1>(`
    select 1 from webhook_deliveries where event_seq = ? and state in ('pending', 'failed') limit 1`)
  const findDeliveries = oneColumn(database)<[number], number>(`
    select delivery_seq from webhook_deliveries where event_seq = ?`)
  const removeAttempts = database.prepare<[number]>('delete from webhook_attempts where delivery_seq = ?')
  const removeDelivery = database.prepare<[number]>('delete from webhook_deliveries where delivery_seq = ?')
  const removeEvent = database.prepare<[number]>('delete from events where event_seq = ?')
  return {
    mayGo(events: readonly number[]): boolean {
      const newest = askAhead(findNewest)
      const holders = events.map((event) => askAhead(findHolder, event))
      return holders.every((holder, index) => holder().length === 0 && events[index] !== newest()[0])
    },
    remove(events: readonly number[]): RunResult[] {
      const deliveries = events.map((event) => askAhead(findDeliveries, event)).flatMap((found) => found())
      const removed = deliveries.flatMap((delivery) => [removeAttempts.run(delivery), removeDelivery.run(delivery)])
      return [...removed, ...events.map((event) => removeEvent.run(event))]
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
  const events = createEventRemoval(database)
  return (request) =>
    walkOldest(request, findNext, ({ seq }) => (events.mayGo([seq]) ? rowsGone(events.remove([seq])) : 0))
}
