/**
 * What is known of a message, for lookup, and of the queue, for metrics and watchdog. Reads only what was committed.
 */
import type { Database } from 'better-sqlite3'
import { identifierFromBytes, identifierToBytes } from '../../base/identifier.ts'
import type { BounceType, DeliveryAttempt } from '../../mail/delivery-outcome.ts'
import type { EventKind } from '../../mail/event.ts'
import type { MessageState, Stream, Variables } from '../../mail/message.ts'
import type { MessageView, QueueSummary, TimelineEvent } from '../records.ts'

type StoredState = 'waiting' | 'sending' | 'delivered' | 'bounced' | 'suppressed' | 'canceled'

interface MessageRow {
  seq: number
  state: StoredState
  pool: string
  domain: string
  stream: Stream
  recipient: string
  nextAt: number
  expiresAt: number
  createdAt: number
  attempts: number
  pathFailures: number
  possibleDuplicate: number
  isp: string | null
  finalAt: number | null
  variables: string | null
  batchId: Buffer | null
  sender: string
  subject: string
  hasVariables: number
  bounceType: BounceType | null
  bounceCategory: string | null
  bounceCode: string | null
  bounceDescription: string | null
}

const MESSAGE_QUERY = `
  select
    messages.seq, messages.state, pools.name as pool, lanes.domain, lanes.stream, messages.recipient,
    messages.next_at as nextAt, messages.expires_at as expiresAt, messages.created_at as createdAt, messages.attempts,
    messages.path_failures as pathFailures, messages.possible_duplicate as possibleDuplicate, messages.isp,
    messages.final_at as finalAt, message_data.variables, message_data.batch_id as batchId,
    contents.from_address as sender, contents.subject, contents.has_variables as hasVariables,
    bounces.type as bounceType, bounces.category as bounceCategory, bounces.code as bounceCode,
    bounces.description as bounceDescription
  from messages
  join pools on pools.pool_id = messages.pool_id
  join lanes on lanes.lane_id = messages.lane_id
  join contents on contents.content_id = messages.content_id
  left join message_data on message_data.message_seq = messages.seq
  left join bounces on bounces.message_seq = messages.seq
  where messages.id = ?`

export function createLookupMessage(database: Database): (id: string) => MessageView | null {
  const findMessage = database.prepare<[Buffer], MessageRow>(MESSAGE_QUERY)
  const findAttempts = database.prepare<[number], DeliveryAttempt>(`
    select
      at, duration_milliseconds as durationMilliseconds, ip, result, stage, reply, host, local_address as localAddress,
      remote_address as remoteAddress, tls
    from attempts
    where message_seq = ?
    order by at`)
  return (id) => {
    const row = findById(findMessage, id)
    return row === undefined ? null : viewOf(id, row, findAttempts.all(row.seq))
  }
}

function viewOf(id: string, row: MessageRow, attempts: DeliveryAttempt[]): MessageView {
  return {
    id,
    batchId: row.batchId === null ? null : identifierFromBytes('bat', row.batchId),
    state: stateOf(row),
    recipient: row.recipient,
    from: row.sender,
    subject: row.subject,
    hasVariables: row.hasVariables === 1,
    variables: row.variables === null ? {} : (JSON.parse(row.variables) as Variables),
    stream: row.stream,
    domain: row.domain,
    pool: row.pool,
    isp: row.isp,
    ip: attempts.findLast((attempt) => attempt.ip !== null)?.ip ?? null,
    createdAt: row.createdAt,
    expiresAt: row.expiresAt,
    nextAttemptAt: row.state === 'waiting' ? row.nextAt : null,
    deliveredAt: row.state === 'delivered' ? row.finalAt : null,
    bouncedAt: row.state === 'bounced' ? row.finalAt : null,
    bounce: bounceOf(row),
    isPossibleDuplicate: row.possibleDuplicate === 1,
    attempts,
  }
}

/** engine.md 3.1: the API's states are finer than the stored ones. */
function stateOf(row: MessageRow): MessageState {
  if (row.state === 'waiting') return row.attempts > 0 || row.pathFailures > 0 ? 'deferred' : 'queued'
  if (row.state === 'bounced' && row.bounceCategory === 'expired') return 'expired'
  return row.state
}

function bounceOf(row: MessageRow): MessageView['bounce'] {
  const { bounceType: type, bounceCategory: category, bounceCode: code, bounceDescription: description } = row
  if (type === null || category === null || code === null || description === null) return null
  return { type, category, code, description, at: row.finalAt ?? row.createdAt }
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
    return findEvents.all(row.seq).map((event) => ({
      id: identifierFromBytes('evt', event.id),
      kind: event.kind,
      at: event.at,
      data: event.body === null ? {} : (JSON.parse(event.body) as Pick<TimelineEvent, 'data'>).data,
    }))
  }
}

/** A text that is no identifier names no message. */
function findById<Row>(statement: { get(id: Buffer): Row | undefined }, id: string): Row | undefined {
  const bytes = identifierToBytes('msg', id)
  return bytes === undefined ? undefined : statement.get(bytes)
}

export function createQueueSummary(database: Database): (now: number) => QueueSummary {
  const count = (where: string) =>
    database.prepare<[], number>(`select count(*) from messages where ${where}`).pluck()
  // The bounds make each count walk its partial index alone.
  const countWaiting = count(`state = 'waiting' and expires_at > 0`)
  const countSending = count(`state = 'sending' and lease_until > 0`)
  const findOldest = database
    .prepare<[], number | null>(`
      select min((select min(next_at) from messages where state = 'waiting' and pool_id = pools.pool_id))
      from pools`)
    .pluck()
  return (now) => {
    const oldest = findOldest.get() ?? null
    return {
      waiting: countWaiting.get() ?? 0,
      sending: countSending.get() ?? 0,
      oldestDueAt: oldest === null || oldest > now ? null : oldest,
    }
  }
}
