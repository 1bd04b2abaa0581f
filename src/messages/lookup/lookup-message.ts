/**
 * Messages and batches looked up and searched for (http/README.md "Batch lookup and cancel" and "Lookup"). A key that
 * is limited to some sending domains sees those alone. Throws ServiceError `not_found`, and `invalid_request` for
 * search parameters.
 */
import { toUnixSeconds } from '../../base/clock.ts'
import type { MessageState } from '../../mail/message.ts'
import type { BatchView } from '../../store/records/lookup-records.ts'
import { createExplainMessage, type ExplainMessage, type ExplainOptions } from './explain-message.ts'
import {
  eventData,
  listedMessageData,
  messageData,
  type EventData,
  type ListedMessageData,
  type MessageData,
} from './message-data.ts'
import { readSearch, type MessageQuery } from './read-search.ts'
import { notFound, requireBatch, requireMessage, type Viewer } from './visible-messages.ts'

interface BatchData {
  batch_id: string
  created_at: number
  from: string
  /** Before variables. */
  subject: string
  total: number
  accepted: number
  rejected: number
  states: Record<MessageState, number>
  opened: number
  clicked: number
  complained: number
}

/** One attempt. */
interface TranscriptData {
  /** 1 is the first. */
  n: number
  at: number
  ip: string | null
  mx: string | null
  /** The SMTP dialogue without the message; null: not kept, or no longer. */
  dialogue: string | null
}

export interface MessageLookup {
  message(id: string, viewer: Viewer): Promise<MessageData>
  /** Newest first. A page may hold fewer than `limit` and still not be the last. */
  search(query: MessageQuery, viewer: Viewer): Promise<{ messages: ListedMessageData[]; next: string | null }>
  /** Oldest first. */
  events(id: string, viewer: Viewer): Promise<EventData[]>
  /** Oldest first. */
  transcript(id: string, viewer: Viewer): Promise<TranscriptData[]>
  batch(id: string, viewer: Viewer): Promise<BatchData>
  explain: ExplainMessage
}

export function createMessageLookup(options: ExplainOptions): MessageLookup {
  const { store, clock } = options

  return {
    explain: createExplainMessage(options),
    async message(id, viewer) {
      return messageData(await requireMessage(store, id, viewer, clock.now()))
    },
    async search(query, viewer) {
      const page = await store.searchMessages({
        ...readSearch(query),
        domains: viewer.domains.length === 0 ? null : [...viewer.domains],
        now: clock.now(),
      })
      return { messages: page.messages.map(listedMessageData), next: page.next }
    },
    async events(id, viewer) {
      await requireMessage(store, id, viewer, clock.now())
      const events = await store.messageEvents(id)
      if (events === null) throw notFound('message', id)
      return events.map(eventData)
    },
    async transcript(id, viewer) {
      await requireMessage(store, id, viewer, clock.now())
      const transcripts = await store.transcripts(id)
      if (transcripts === null) throw notFound('message', id)
      return transcripts.map(({ at, ip, host, dialogue }, index) => ({
        n: index + 1,
        at: toUnixSeconds(at),
        ip,
        mx: host,
        dialogue,
      }))
    },
    async batch(id, viewer) {
      return batchData(await requireBatch(store, id, viewer, clock.now()))
    },
  }
}

function batchData(batch: BatchView): BatchData {
  const { id, createdAt, from, subject, accepted, rejected, states, opened, clicked, complained } = batch
  return {
    batch_id: id,
    created_at: toUnixSeconds(createdAt),
    from,
    subject,
    total: accepted + rejected,
    accepted,
    rejected,
    states,
    opened,
    clicked,
    complained,
  }
}
