/** What is known of a message, for lookup. Reads only what was committed. */
import type { Database } from '../../engine/database.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import type { EventKind } from '../../../mail/event.ts'
import type { RoadSummary, TimelineEvent, TranscriptView, BatchView } from '../../records/lookup-records.ts'
import { createAttemptReader } from '../messages/attempt-rows.ts'
import {
  messageQuery,
  viewOf,
  type MessageRow,
  variablesFrom,
  stateOf,
  type StoredStateFacts,
} from '../messages/message-views.ts'
import { createFactsReader } from '../messages/render-facts.ts'
import { createContentReader } from '../messages/stored-content.ts'
import { createFindTrackingHost } from '../domains/domain-rows.ts'
import { oneColumn } from '../tools/statements.ts'
import { ERASED } from '../tools/stored-address.ts'
import { getNamed, storedIdentifier } from '../tools/stored-identifier.ts'
import { MESSAGE_STATES, type MessageState } from '../../../mail/message.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'

export function createMessageReads(database: Database) {
  const findMessage = database.prepare<[Buffer], MessageRow>(messageQuery('messages.id = +?'))
  const attemptsOf = createAttemptReader(database)
  const findSeq = database.prepare<[Buffer], { seq: number }>('select seq from messages where id = ?')
  const findEvents = database.prepare<[number], { id: Buffer; kind: EventKind; at: number; body: string | null }>(`
    select id, kind, at, body
    from events
    where message_seq = ?
    order by event_seq`)
  const findTries = database.prepare<[number], TranscriptView>(`
    select
      attempts.at, attempts.ip, attempts.host,
      (select dialogue from transcripts
        where message_seq = attempts.message_seq and at = attempts.at and result = attempts.result) as dialogue
    from attempts
    where attempts.message_seq = ?
    order by attempts.at`)
  const findContentId = oneColumn(database)<[number], number>('select content_id from messages where seq = ?')
  const readContent = createContentReader(database)
  const readFacts = createFactsReader(database)
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

  return {
    lookupMessage(id, now) {
      const row = getNamed(findMessage, 'msg', id)
      return row === undefined ? null : { ...viewOf(row, now), attempts: attemptsOf(row.seq) }
    },
    messageEvents(id) {
      const row = getNamed(findSeq, 'msg', id)
      if (row === undefined) return null
      return findEvents.all(row.seq).map(({ id, body, ...event }) => {
        const { data } = body === null ? { data: {} } : (JSON.parse(body) as Pick<TimelineEvent, 'data'>)
        return { ...event, id: identifierFromBytes('evt', id), data }
      })
    },
    transcripts(id) {
      const row = getNamed(findSeq, 'msg', id)
      return row === undefined ? null : findTries.all(row.seq)
    },
    messageContent(id) {
      const row = getNamed(findSeq, 'msg', id)
      const contentId = row === undefined ? undefined : findContentId.get(row.seq)
      const content = contentId === undefined ? undefined : readContent(contentId)
      const facts = row === undefined ? undefined : readFacts(row.seq)
      // Without the variables of an erased recipient nothing can be filled in.
      const isKnown = facts !== undefined && facts.to.address !== ERASED
      return content === undefined || !isKnown ? null : { content, facts }
    },
    roadSummary: (isp, ip, since) =>
      summarize.get(since, MOST_ROAD_ATTEMPTS, ip, ip, isp) ?? { attempts: 0, deferred: 0 },
  } satisfies SomeVerbs
}

/** Attempts that the summary of a road looks at: beyond them it speaks of the newest. */
const MOST_ROAD_ATTEMPTS = 10_000

interface SourceRow {
  contentId: number
  hasVariables: number
  variables: string | null
  unsubscribeList: string | null
  unsubscribeUrl: string | null
  domain: string
}

export function createBatchAndLinkReads(database: Database) {
  const findSource = database.prepare<[Buffer], SourceRow>(`
    select
      contents.content_id as contentId, contents.has_variables as hasVariables, message_data.variables,
      contents.unsubscribe_list as unsubscribeList, contents.unsubscribe_url as unsubscribeUrl, lanes.domain
    from messages
    cross join contents on contents.content_id = messages.content_id
    cross join lanes on lanes.lane_id = messages.lane_id
    left join message_data on message_data.message_seq = messages.seq
    where messages.id = ?`)
  // Of a removed message.
  const findTrace = database.prepare<[Buffer], SourceRow>(`
    select
      contents.content_id as contentId, contents.has_variables as hasVariables, traces.variables,
      contents.unsubscribe_list as unsubscribeList, contents.unsubscribe_url as unsubscribeUrl, lanes.domain
    from traces
    cross join contents on contents.content_id = traces.content_id
    cross join lanes on lanes.lane_id = traces.lane_id
    where traces.id = ?`)
  const findTrackingHost = createFindTrackingHost(database)
  const findBatch = database.prepare<[Buffer], BatchRow>(`
    select
      batches.content_id as contentId, batches.created_at as createdAt, batches.rejected,
      contents.from_address as "from", contents.subject, contents.is_test as isTest,
      (select lanes.domain from messages join lanes on lanes.lane_id = messages.lane_id
        where messages.content_id = batches.content_id limit 1) as domain
    from batches
    join contents on contents.content_id = batches.content_id
    where batches.id = ?`)
  const findMessages = database.prepare<
    [number],
    StoredStateFacts & { opened: number; clicked: number; complained: number }
  >(`
    select
      messages.state, messages.attempts, messages.path_failures as pathFailures, contents.send_at as sendAt,
      bounces.category as bounceCategory, coalesce(engagement_counts.opens, 0) > 0 as opened,
      coalesce(engagement_counts.clicks, 0) > 0 as clicked, complaints.at is not null as complained
    from messages
    join contents on contents.content_id = messages.content_id
    left join bounces on bounces.message_seq = messages.seq
    left join complaints on complaints.message_seq = messages.seq
    left join engagement_counts on engagement_counts.message_seq = messages.seq
    where messages.content_id = ?`)

  return {
    linkSource(messageId) {
      const id = storedIdentifier('msg', messageId)
      const row = findSource.get(id) ?? findTrace.get(id)
      if (row === undefined) return null
      const { contentId, unsubscribeList: list, unsubscribeUrl: url, domain } = row
      return {
        contentId,
        hasVariables: row.hasVariables === 1,
        variables: variablesFrom(row.variables),
        unsubscribe: list === null ? null : { list, url },
        trackingHost: findTrackingHost(domain),
      }
    },
    lookupBatch(id, now) {
      const batch = getNamed(findBatch, 'bat', id)
      if (batch === undefined) return null
      const states = Object.fromEntries(MESSAGE_STATES.map((state) => [state, 0])) as Record<MessageState, number>
      const view = { id, accepted: 0, states, opened: 0, clicked: 0, complained: 0 }
      for (const row of findMessages.iterate(batch.contentId)) {
        view.accepted += 1
        view.states[stateOf(row, now)] += 1
        view.opened += row.opened
        view.clicked += row.clicked
        view.complained += row.complained
      }
      const { contentId: _contentId, isTest, ...facts } = batch
      return { ...facts, ...view, isTest: isTest === 1 }
    },
  } satisfies SomeVerbs
}

interface BatchRow extends Pick<BatchView, 'createdAt' | 'from' | 'subject' | 'domain' | 'rejected'> {
  contentId: number
  isTest: number
}
