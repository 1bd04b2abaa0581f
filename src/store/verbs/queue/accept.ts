/**
 * Accepting: a whole checked request becomes its content, its queue rows, their events and its idempotency key, or
 * nothing.
 *
 *   (accept) -> waiting      due now, or at the request's time
 *   (accept) -> suppressed   the address is on the list: final at once, with its bounce and events
 */
import type { Database } from '../tools/database.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import type { AcceptResult, NewMessage, PackedRequest, SuppressedMessage } from '../../records/accept-records.ts'
import { textUnlessEmpty } from '../../records/packed-content.ts'
import { CAPTURE_ROUTE, UNROUTED, type QueuedRows } from '../../records/queue-records.ts'
import type { SuppressionReason } from '../../records/suppression-records.ts'
import { comparableAddress } from '../tools/stored-address.ts'
import { createAnswerWriter, createFindIdempotent } from './kept-answers.ts'
import { createQueueNames, createQueuedTally } from './queue-names.ts'
import { ownerOf } from '../../../mail/reach.ts'
import { createEventRecorder, type RecordedEvent } from '../events/record-events.ts'
import { createFindDomainRoute, type KnownRoute } from './routes.ts'
import { createContentWriter } from '../messages/stored-content.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import { createSuppressedEnding, createSuppressionCheck } from '../suppressions/suppressions.ts'

export function createAcceptMessages(database: Database): (request: PackedRequest) => AcceptResult {
  const findIdempotent = createFindIdempotent(database)
  const keepAnswer = createAnswerWriter(database)
  const addRequest = createRequestWriter(database)
  return (request) => {
    const { idempotency, now } = request
    if (idempotency !== null) {
      const known = findIdempotent(idempotency.entry, now)
      if (known.kind !== 'new') return known
    }
    const { suppressed, queued } = addRequest(request)
    if (idempotency !== null) keepAnswer(idempotency.entry, idempotency.answer, suppressed, now)
    return { kind: 'accepted', suppressed, queued }
  }
}

interface WrittenRequest {
  /** Messages that ended at once. */
  suppressed: SuppressedMessage[]
  /** The others. */
  queued: QueuedRows
}

/** Writes everything of a request but its idempotency key. */
function createRequestWriter(database: Database): (request: PackedRequest) => WrittenRequest {
  const names = createQueueNames(database)
  const writeContent = createContentWriter(database)
  const addBatch = createBatchWriter(database)
  const checkSuppression = createSuppressionCheck(database)
  const endSuppressed = createSuppressedEnding(database)
  const createRoad = createRoads(database)
  const addMessage = createMessageWriter(database)
  const events = createEventRecorder(database)

  return (request) => {
    const { now, isTest, content } = request
    const sendAt = request.sendAt !== null && request.sendAt > now ? request.sendAt : null
    const contentId = writeContent(content, { isTest, sendAt, retryOf: request.retryOf })
    addBatch(contentId, request)
    const laneId = names.laneId(request.domain, request.stream)
    const roadOf = createRoad(request)
    const owner = ownerOf({ isTest, domain: request.domain, from: content.fromAddress })
    const suppressed: SuppressedMessage[] = []
    const tally = createQueuedTally()
    const happened: RecordedEvent[] = []
    for (const [index, message] of request.messages.entries()) {
      const recipient = comparableAddress(message.to.address)
      const reason =
        message.simulatedSuppression === undefined
          ? checkSuppression(recipient, owner, content.unsubscribeList)
          : message.simulatedSuppression
      const road = roadOf(message)
      const dueAt = sendAt ?? now
      const key = addMessage(message, { contentId, laneId, road, recipient, dueAt, now, reason })
      events.recordPlain('email.accepted', key, now)
      if (reason === null) {
        const { pool, route } = road
        const { domain, stream } = request
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

/** The roads of a request's messages: looked up once for each recipient domain. */
function createRoads(database: Database): (request: PackedRequest) => (message: NewMessage) => Road {
  const names = createQueueNames(database)
  const findRoute = createFindDomainRoute(database)
  return ({ pool }) => {
    const poolId = names.poolId(pool)
    const roads = new Map<string, Road>()
    const unrouted: KnownRoute = { routeId: 0, route: UNROUTED }
    let captured: Road | undefined
    return ({ isCaptured, recipientDomain }) => {
      if (isCaptured) {
        captured ??= {
          pool: CAPTURE_POOL,
          poolId: names.poolId(CAPTURE_POOL),
          acceptedFor: poolId,
          route: CAPTURE_ROUTE,
          routeId: names.routeId(CAPTURE_ROUTE),
        }
        return captured
      }
      const known = roads.get(recipientDomain)
      if (known !== undefined) return known
      const road = { pool, poolId, acceptedFor: null, ...(findRoute(recipientDomain) ?? unrouted) }
      roads.set(recipientDomain, road)
      return road
    }
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
