/** Batches: what became of the messages of one request. */
import type { Database } from 'better-sqlite3'
import { identifierToBytes } from '../../../base/identifier.ts'
import type { MessageState } from '../../../mail/message.ts'
import type { BatchView } from '../../records/lookup-records.ts'
import { stateOf, type StoredStateFacts } from '../messages/message-views.ts'

interface BatchRow extends Pick<BatchView, 'createdAt' | 'from' | 'subject' | 'domain' | 'rejected'> {
  contentId: number
}

interface BatchMessageRow extends StoredStateFacts {
  opened: number
  clicked: number
  complained: number
}

const NO_STATES: Readonly<Record<MessageState, number>> = {
  scheduled: 0,
  queued: 0,
  sending: 0,
  deferred: 0,
  delivered: 0,
  bounced: 0,
  expired: 0,
  canceled: 0,
  suppressed: 0,
}

export function createLookupBatch(database: Database): (request: { id: string; now: number }) => BatchView | null {
  const findBatch = database.prepare<[Buffer], BatchRow>(`
    select
      batches.content_id as contentId, batches.created_at as createdAt, batches.rejected,
      contents.from_address as "from", contents.subject,
      (select lanes.domain from messages join lanes on lanes.lane_id = messages.lane_id
        where messages.content_id = batches.content_id limit 1) as domain
    from batches
    join contents on contents.content_id = batches.content_id
    where batches.id = ?`)
  const findMessages = database.prepare<[number], BatchMessageRow>(`
    select
      messages.state, messages.attempts, messages.path_failures as pathFailures, contents.send_at as sendAt,
      bounces.category as bounceCategory, coalesce(engagement_counts.opens > 0, 0) as opened,
      coalesce(engagement_counts.clicks > 0, 0) as clicked, complaints.at is not null as complained
    from messages
    join contents on contents.content_id = messages.content_id
    left join bounces on bounces.message_seq = messages.seq
    left join complaints on complaints.message_seq = messages.seq
    left join engagement_counts on engagement_counts.message_seq = messages.seq
    where messages.content_id = ?`)
  return ({ id, now }) => {
    const bytes = identifierToBytes('bat', id)
    const batch = bytes === undefined ? undefined : findBatch.get(bytes)
    if (batch === undefined) return null
    const view = { id, accepted: 0, states: { ...NO_STATES }, opened: 0, clicked: 0, complained: 0 }
    for (const row of findMessages.iterate(batch.contentId)) {
      view.accepted += 1
      view.states[stateOf(row, now)] += 1
      view.opened += row.opened
      view.clicked += row.clicked
      view.complained += row.complained
    }
    const { contentId: _contentId, ...facts } = batch
    return { ...facts, ...view }
  }
}
