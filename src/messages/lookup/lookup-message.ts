/**
 * Messages and batches looked up and searched for (http/README.md "Batch lookup and cancel" and "Lookup"). Those
 * within the reach of the one who asks. Throws ServiceError `not_found`, and `invalid_request` for
 * search parameters.
 */
import type { BatchJson, MessageQuery } from '../../api/message.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import { inSlices } from '../../base/in-slices.ts'
import { withoutTokens } from '../../mail/reply/smtp-reply.ts'
import type { Reach } from '../../mail/reach.ts'
import type { BatchView } from '../../store/records/lookup-records.ts'
import { createExplainMessage, type ExplainOptions } from './explain-message.ts'
import { eventData, listedMessageData, messageData } from './message-data.ts'
import { readSearch } from './read-search.ts'
import { notFound, requireBatch, requireMessage } from './visible-messages.ts'

export type MessageLookup = ReturnType<typeof createMessageLookup>

/** A search by subject waits for so many at most; the job goes on with the rest. */
const MOST_INDEXED_FIRST = 50_000
const MOST_INDEXED_BY_JOB = 1_000_000

export function createMessageLookup(options: ExplainOptions) {
  const { store, clock } = options
  const indexSubjects = (most: number) => inSlices(most, (limit) => store.indexSubjects(limit))

  return {
    explain: createExplainMessage(options),
    async message(id: string, reach: Reach) {
      return messageData(await requireMessage(store, id, reach, clock.now()))
    },
    /** The job: what is searched for by its subject. */
    indexSubjects: () => indexSubjects(MOST_INDEXED_BY_JOB),
    /** Newest first. A page may hold fewer than `limit` and still not be the last. */
    async search(query: MessageQuery, reach: Reach) {
      const search = readSearch(query)
      if (search.subject !== null) await indexSubjects(MOST_INDEXED_FIRST)
      const page = await store.searchMessages({ ...search, reach, now: clock.now() })
      return { messages: page.messages.map(listedMessageData), next: page.next }
    },
    /** Oldest first. */
    async events(named: string, reach: Reach) {
      const { id } = await requireMessage(store, named, reach, clock.now())
      const events = await store.messageEvents(id)
      if (events === null) throw notFound('message', id)
      return events.map(eventData)
    },
    /** Oldest first. A key reads of its own messages; what a token does holds for the mail of all domains. */
    async transcript(named: string, reach: Reach) {
      const { id } = await requireMessage(store, named, reach, clock.now())
      const transcripts = await store.transcripts(id)
      if (transcripts === null) throw notFound('message', id)
      return transcripts.map(({ at, ip, host, dialogue }, index) => ({
        n: index + 1,
        at: toUnixSeconds(at),
        ip,
        mx: host,
        dialogue: dialogue === null ? null : withoutTokens(dialogue),
      }))
    },
    async batch(id: string, reach: Reach) {
      return batchData(await requireBatch(store, id, reach, clock.now()))
    },
  }
}

function batchData({ id, createdAt, domain: _domain, isTest: _isTest, ...batch }: BatchView): BatchJson {
  const total = batch.accepted + batch.rejected
  return { ...batch, batch_id: id, created_at: toUnixSeconds(createdAt), total }
}
