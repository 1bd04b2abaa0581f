/**
 * Accepting: a whole checked request becomes its content, its queue rows, their events and its idempotency key, or
 * nothing.
 *
 *   (accept) -> waiting      due now, or at the request's time
 *   (accept) -> suppressed   the address is on the list: final at once, with its bounce and events
 */
import type { Database } from '../../engine/database.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import type { AcceptResult, NewMessage, PackedRequest, SuppressedMessage } from '../../records/accept-records.ts'
import { textUnlessEmpty } from '../../records/packed-content.ts'
import { CAPTURE_ROUTE, UNROUTED, type QueuedRows } from '../../records/queue-records.ts'
import type { SuppressionReason } from '../../records/suppression-records.ts'
import { comparableAddress } from '../tools/stored-address.ts'
import type { Stream } from '../../../mail/message.ts'
import { ownerOf, type Owner } from '../../../mail/reach.ts'
import { createAnswerWriter, createAskIdempotent } from './kept-answers.ts'
import { createNameQuestions, createQueuedTally } from './queue-names.ts'
import { createEventRecorder, type RecordedEvent } from '../events/record-events.ts'
import { createAskDomainRoute, type KnownRoute } from './routes.ts'
import { createContentWriter } from '../messages/stored-content.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import { createSuppressedEnding, createSuppressionCheck } from '../suppressions/suppressions.ts'

/** Of requests that came together: what they have to look up is asked at once. */
export function createAcceptMessages(database: Database): (requests: readonly PackedRequest[]) => AcceptResult[] {
  const askIdempotent = createAskIdempotent(database)
  const askAll = createQuestions(database)
  const keepAnswer = createAnswerWriter(database)
  const addRequest = createRequestWriter(database)
  return (requests) => {
    const known = requests.map(({ idempotency, now }) => idempotency && askIdempotent(idempotency.entry, now))
    const answers = askAll(requests)
    const usedKeys = new Set<string>()
    return requests.map((request, index) => {
      const { idempotency, now } = request
      if (idempotency !== null) {
        const { entry } = idempotency
        const name = `${entry.apiKeyId} ${entry.key}`
        const earlier = usedKeys.has(name) ? askIdempotent(entry, now)() : known[index]?.()
        if (earlier !== undefined && earlier.kind !== 'new') return earlier
        usedKeys.add(name)
      }
      const { suppressed, queued } = addRequest(request, answers)
      if (idempotency !== null) keepAnswer(idempotency.entry, idempotency.answer, suppressed, now)
      return { kind: 'accepted', suppressed, queued }
    })
  }
}

/** What requests ask of the database before they are written. */
interface Answers {
  poolId(name: string): number
  laneId(domain: string, stream: Stream): number
  routeId(name: string): number
  /** UNROUTED: it is not looked up yet. */
  routeOf(recipientDomain: string): KnownRoute
  /** Why a message is not sent, or null. */
  suppression(message: NewMessage, request: PackedRequest): SuppressionReason | null
}

const UNKNOWN_ROUTE: KnownRoute = { routeId: 0, route: UNROUTED }

/** Asks everything that the requests need, each once. */
function createQuestions(database: Database): (requests: readonly PackedRequest[]) => Answers {
  const beginNames = createNameQuestions(database)
  const askRoute = createAskDomainRoute(database)
  const beginChecks = createSuppressionCheck(database)
  return (requests) => {
    const names = beginNames()
    const askListed = beginChecks()
    const routes = new Map<string, () => KnownRoute | undefined>()
    const checks = new Map<NewMessage, (list: string | null) => SuppressionReason | null>()
    for (const request of requests) {
      names.ask(request)
      const owner = ownerOfRequest(request)
      for (const message of request.messages) {
        const { isCaptured, recipientDomain, to, simulatedSuppression } = message
        if (!isCaptured && !routes.has(recipientDomain)) routes.set(recipientDomain, askRoute(recipientDomain))
        if (simulatedSuppression === undefined) checks.set(message, askListed(to.address, owner))
      }
    }
    return {
      ...names,
      routeOf: (domain) => routes.get(domain)?.() ?? UNKNOWN_ROUTE,
      suppression: (message, { content }) =>
        checks.get(message)?.(content.unsubscribeList) ?? message.simulatedSuppression ?? null,
    }
  }
}

const ownerOfRequest = ({ isTest, domain, content }: PackedRequest): Owner =>
  ownerOf({ isTest, domain, from: content.fromAddress })

interface WrittenRequest {
  /** Messages that ended at once. */
  suppressed: SuppressedMessage[]
  /** The others. */
  queued: QueuedRows
}

/** Writes everything of a request but its idempotency key. */
function createRequestWriter(database: Database): (request: PackedRequest, answers: Answers) => WrittenRequest {
  const writeContent = createContentWriter(database)
  const addBatch = createBatchWriter(database)
  const endSuppressed = createSuppressedEnding(database)
  const addMessage = createMessageWriter(database)
  const events = createEventRecorder(database)

  return (request, answers) => {
    const { now, isTest, content, domain, stream } = request
    const sendAt = request.sendAt !== null && request.sendAt > now ? request.sendAt : null
    const contentId = writeContent(content, { isTest, sendAt, retryOf: request.retryOf })
    addBatch(contentId, request)
    const laneId = answers.laneId(domain, stream)
    const suppressed: SuppressedMessage[] = []
    const tally = createQueuedTally()
    const happened: RecordedEvent[] = []
    for (const [index, message] of request.messages.entries()) {
      const recipient = comparableAddress(message.to.address)
      const reason = answers.suppression(message, request)
      const road = roadOf(message, request, answers)
      const dueAt = sendAt ?? now
      const key = addMessage(message, { contentId, laneId, road, recipient, dueAt, now, reason })
      events.recordPlain('email.accepted', key, now)
      if (reason === null) {
        const { pool, route } = road
        tally.add({ pool, route, domain, stream, isRetry: false }, message.recipientDomain, dueAt)
        continue
      }
      suppressed.push({ index, reason })
      happened.push(...endSuppressed({ key, id: message.id, recipient, reason }, now))
    }
    if (happened.length > 0) events.record(happened, now)
    return { suppressed, queued: tally.result() }
  }
}

/** Where a message is queued. */
interface Road extends KnownRoute {
  pool: string
  poolId: number
  /** For captured mail: the pool it was accepted for. */
  acceptedFor: number | null
}

function roadOf({ isCaptured, recipientDomain }: NewMessage, { pool }: PackedRequest, answers: Answers): Road {
  const poolId = answers.poolId(pool)
  if (!isCaptured) return { pool, poolId, acceptedFor: null, ...answers.routeOf(recipientDomain) }
  return {
    pool: CAPTURE_POOL,
    poolId: answers.poolId(CAPTURE_POOL),
    acceptedFor: poolId,
    route: CAPTURE_ROUTE,
    routeId: answers.routeId(CAPTURE_ROUTE),
  }
}

function createBatchWriter(database: Database): (contentId: number, request: PackedRequest) => void {
  const add = database.prepare<[number, Buffer, Buffer | null, number, number]>(`
    insert into batches (content_id, id, api_key_id, created_at, rejected) values (?, ?, ?, ?, ?)`)
  return (contentId, { batch, apiKeyId, now }) => {
    if (batch === null) return
    const owner = apiKeyId === null ? null : storedIdentifier('key', apiKeyId)
    add.run(contentId, storedIdentifier('bat', batch.id), owner, now, batch.rejected)
  }
}

/** What a row says beside its message. */
interface RowFacts {
  contentId: number
  laneId: number
  road: Road
  recipient: string
  dueAt: number
  now: number
  /** Why it is suppressed, or null: it waits. */
  reason: SuppressionReason | null
}

/** Writes the row of a message and returns its number. */
function createMessageWriter(database: Database): (message: NewMessage, row: RowFacts) => number {
  const add = database.prepare(`
    insert into messages
      (id, state, pool_id, route_id, lane_id, content_id, recipient, recipient_domain, next_at, expires_at, created_at,
      final_at)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
  const addData = database.prepare<[number, string | null, string | null, number | null]>(`
    insert into message_data (message_seq, to_name, variables, pool_id) values (?, ?, ?, ?)`)
  return (message, { contentId, laneId, road, recipient, dueAt, now, reason }) => {
    const { lastInsertRowid } = add.run(
      storedIdentifier('msg', message.id),
      reason === null ? 'waiting' : 'suppressed',
      road.poolId,
      road.routeId,
      laneId,
      contentId,
      recipient,
      message.recipientDomain,
      dueAt,
      message.expiresAt,
      now,
      reason === null ? null : now,
    )
    const key = Number(lastInsertRowid)
    const variables = textUnlessEmpty(message.variables)
    // Most messages have none of these, and then no row.
    if (message.to.name !== null || variables !== null || road.acceptedFor !== null) {
      addData.run(key, message.to.name, variables, road.acceptedFor)
    }
    return key
  }
}
