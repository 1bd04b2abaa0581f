/** What is known of a message, for lookup. Reads only what was committed. */
import type { Database } from 'better-sqlite3'
import { identifierFromBytes, identifierToBytes } from '../../../base/identifier.ts'
import type { EventKind } from '../../../mail/event.ts'
import type { MessageView, RoadSummary, TimelineEvent, TranscriptView } from '../../records/lookup-records.ts'
import { createAttemptReader } from '../messages/attempt-rows.ts'
import { messageQuery, viewOf, type MessageRow } from '../messages/message-views.ts'

export function createLookupMessage(database: Database): (request: { id: string; now: number }) => MessageView | null {
  const findMessage = database.prepare<[Buffer], MessageRow>(messageQuery('messages.id = ?'))
  const attemptsOf = createAttemptReader(database)
  return ({ id, now }) => {
    const row = findById(findMessage, id)
    return row === undefined ? null : { ...viewOf(row, now), attempts: attemptsOf(row.seq) }
  }
}

interface EventRow {
  id: Buffer
  kind: EventKind
  at: number
  body: string | null
}

export function createMessageEvents(database: Database): (id: string) => TimelineEvent[] | null {
  const findSeq = database.prepare<[Buffer], { seq: number }>('select seq from messages where id = ?')
  const findEvents = database.prepare<[number], EventRow>(`
    select id, kind, at, body
    from events
    where message_seq = ?
    order by event_seq`)
  return (id) => {
    const row = findById(findSeq, id)
    if (row === undefined) return null
    return findEvents
      .all(row.seq)
      .map((event) => ({
        id: identifierFromBytes('evt', event.id),
        kind: event.kind,
        at: event.at,
        data: event.body === null ? {} : (JSON.parse(event.body) as Pick<TimelineEvent, 'data'>).data,
      }))
  }
}

export function createTranscripts(database: Database): (id: string) => TranscriptView[] | null {
  const findSeq = database.prepare<[Buffer], { seq: number }>('select seq from messages where id = ?')
  const findTries = database.prepare<[number], TranscriptView>(`
    select
      attempts.at, attempts.ip, attempts.host,
      (select dialogue from transcripts
        where message_seq = attempts.message_seq and at = attempts.at and result = attempts.result) as dialogue
    from attempts
    where attempts.message_seq = ?
    order by attempts.at`)
  return (id) => {
    const row = findById(findSeq, id)
    return row === undefined ? null : findTries.all(row.seq)
  }
}

/** A text that is no identifier names no message. */
function findById<Row>(statement: { get(id: Buffer): Row | undefined }, id: string): Row | undefined {
  const bytes = identifierToBytes('msg', id)
  return bytes === undefined ? undefined : statement.get(bytes)
}

/** Attempts that the summary of a road looks at: beyond them it speaks of the newest. */
const MOST_ROAD_ATTEMPTS = 10_000

export function createRoadSummary(
  database: Database,
): (request: { isp: string; ip: string | null; since: number }) => RoadSummary {
  // A path failure is no attempt (src/README.md "Words").
  const summarize = database.prepare<[number, number, string | null, string | null, string], RoadSummary>(`
    select count(*) as attempts, count(case recent.result when 'deferred' then 1 end) as deferred
    from (
      select message_seq, result, ip
      from attempts
      where at >= ?
      order by at desc
      limit +?
    ) as recent
    cross join messages on messages.seq = recent.message_seq
    where recent.result <> 'path-failed' and (? is null or recent.ip = ?) and messages.isp = ?`)
  return ({ isp, ip, since }) => summarize.get(since, MOST_ROAD_ATTEMPTS, ip, ip, isp) ?? { attempts: 0, deferred: 0 }
}
