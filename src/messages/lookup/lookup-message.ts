/**
 * Messages and batches looked up and searched for (http/README.md "Batch lookup and cancel" and "Lookup"). A key that
 * is limited to some sending domains sees those alone. Throws ServiceError `not_found`, and `invalid_request` for
 * search parameters.
 */
import type { BatchJson } from '../../api/message.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import type { BatchView } from '../../store/records/lookup-records.ts'
import { createExplainMessage, type ExplainOptions } from './explain-message.ts'
import { eventData, listedMessageData, messageData } from './message-data.ts'
import { readSearch, type MessageQuery } from './read-search.ts'
import { notFound, requireBatch, requireMessage, type Viewer } from './visible-messages.ts'

export type MessageLookup = ReturnType<typeof createMessageLookup>

export function createMessageLookup(options: ExplainOptions) {
  const { store, clock } = options

  return {
    explain: createExplainMessage(options),
    async message(id: string, viewer: Viewer) {
      return messageData(await requireMessage(store, id, viewer, clock.now()))
    },
    /** Newest first. A page may hold fewer than `limit` and still not be the last. */
    async search(query: MessageQuery, viewer: Viewer) {
      const page = await store.searchMessages({
        ...readSearch(query),
        domains: viewer.domains.length === 0 ? null : [...viewer.domains],
        now: clock.now(),
      })
      return { messages: page.messages.map(listedMessageData), next: page.next }
    },
    /** Oldest first. */
    async events(id: string, viewer: Viewer) {
      await requireMessage(store, id, viewer, clock.now())
      const events = await store.messageEvents(id)
      if (events === null) throw notFound('message', id)
      return events.map(eventData)
    },
    /** Oldest first. */
    async transcript(id: string, viewer: Viewer) {
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
    async batch(id: string, viewer: Viewer) {
      return batchData(await requireBatch(store, id, viewer, clock.now()))
    },
  }
}

function batchData(batch: BatchView): BatchJson {
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
