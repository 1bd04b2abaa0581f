/** A message as lookup and search show it, read from its row and all that stands beside it. */
import { identifierFromBytes } from '../../../base/identifier.ts'
import type { BounceType } from '../../../mail/reply/delivery-outcome.ts'
import type { MessageState, Stream, Variables } from '../../../mail/message.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import type { MessageView } from '../../records/lookup-records.ts'
import type { WaitingFor } from '../../records/queue-records.ts'
import { recordFrom } from './stored-content.ts'

type StoredState = 'waiting' | 'sending' | 'delivered' | 'bounced' | 'suppressed' | 'canceled'

/** What the state of a message follows from. */
export interface StoredStateFacts {
  state: StoredState
  attempts: number
  pathFailures: number
  sendAt: number | null
  bounceCategory: string | null
}

export interface MessageRow extends StoredStateFacts {
  seq: number
  id: Buffer
  contentId: number
  /** The pool it was accepted for. */
  pool: string
  /** The pool it waits in: another one for captured mail. */
  queuePool: string
  domain: string
  stream: Stream
  recipient: string
  recipientDomain: string
  subject: string
  isp: string | null
  ip: string | null
  lastIp: string | null
  createdAt: number
  expiresAt: number
  /** Only what its time does not say. */
  waitingFor: WaitingFor | null
  complainedAt: number | null
  toName: string | null
  nextAt: number
  leaseEpoch: number | null
  possibleDuplicate: number
  finalAt: number | null
  variables: string | null
  batchId: Buffer | null
  sender: string
  hasVariables: number
  tags: string | null
  metadata: string | null
  isTest: number
  retryOf: Buffer | null
  bounceType: BounceType | null
  bounceCode: string | null
  bounceDescription: string | null
  bounceAt: number | null
  late: number | null
  opens: number | null
  clicks: number | null
  machineOpens: number | null
  machineClicks: number | null
}

/** The statement that reads a MessageRow; `where` names one message. */
export const messageQuery = (where: string): string => `
  select
    messages.seq, messages.id, messages.state, messages.content_id as contentId, pools.name as queuePool,
    coalesce(accepted_for.name, pools.name) as pool, lanes.domain, lanes.stream, messages.recipient,
    messages.recipient_domain as recipientDomain, messages.next_at as nextAt, messages.expires_at as expiresAt,
    messages.created_at as createdAt, messages.attempts, messages.path_failures as pathFailures,
    messages.possible_duplicate as possibleDuplicate, messages.isp, messages.final_at as finalAt,
    messages.last_ip as lastIp, messages.lease_epoch as leaseEpoch, messages.waiting_for as waitingFor,
    message_data.to_name as toName, message_data.variables, batches.id as batchId, contents.from_address as sender,
    contents.subject, contents.has_variables as hasVariables, contents.tags, contents.metadata,
    contents.is_test as isTest, contents.send_at as sendAt, contents.retry_of as retryOf, bounces.type as bounceType,
    bounces.category as bounceCategory, bounces.code as bounceCode, bounces.description as bounceDescription,
    bounces.at as bounceAt, bounces.late, complaints.at as complainedAt, engagement_counts.opens,
    engagement_counts.clicks, engagement_counts.machine_opens as machineOpens,
    engagement_counts.machine_clicks as machineClicks,
    (select ip from attempts where message_seq = messages.seq and ip is not null order by at desc limit 1) as ip
  from messages
  join pools on pools.pool_id = messages.pool_id
  join lanes on lanes.lane_id = messages.lane_id
  join contents on contents.content_id = messages.content_id
  left join batches on batches.content_id = messages.content_id
  left join message_data on message_data.message_seq = messages.seq
  left join pools as accepted_for on accepted_for.pool_id = message_data.pool_id
  left join bounces on bounces.message_seq = messages.seq
  left join complaints on complaints.message_seq = messages.seq
  left join engagement_counts on engagement_counts.message_seq = messages.seq
  where ${where}`

/** `attempts` are added by who wants them. */
export function viewOf(row: MessageRow, now: number): MessageView {
  const isLate = row.late === 1
  return {
    id: identifierFromBytes('msg', row.id),
    batchId: row.batchId === null ? null : identifierFromBytes('bat', row.batchId),
    state: stateOf(row, now),
    recipient: row.recipient,
    recipientDomain: row.recipientDomain,
    from: row.sender,
    subject: row.subject,
    hasVariables: row.hasVariables === 1,
    variables: variablesFrom(row.variables),
    stream: row.stream,
    tags: recordFrom(row.tags),
    metadata: recordFrom(row.metadata),
    isTest: row.isTest === 1,
    isCaptured: row.queuePool === CAPTURE_POOL,
    domain: row.domain,
    pool: row.pool,
    isp: row.isp,
    ip: row.ip,
    lastIp: row.lastIp,
    createdAt: row.createdAt,
    sendAt: row.sendAt,
    expiresAt: row.expiresAt,
    nextAttemptAt: row.state === 'waiting' && row.waitingFor !== 'held' ? row.nextAt : null,
    // While it is leased, next_at says since when.
    claimedAt: row.state === 'sending' ? row.nextAt : null,
    leaseEpoch: row.leaseEpoch,
    waitingFor: waitingForOf(row, now),
    deliveredAt: row.state === 'delivered' || isLate ? row.finalAt : null,
    bouncedAt: row.state === 'bounced' ? (row.bounceAt ?? row.finalAt) : null,
    complainedAt: row.complainedAt,
    bounce: bounceOf(row),
    opens: row.opens ?? 0,
    clicks: row.clicks ?? 0,
    machineOpens: row.machineOpens ?? 0,
    machineClicks: row.machineClicks ?? 0,
    isPossibleDuplicate: row.possibleDuplicate === 1,
    retryOf: row.retryOf === null ? null : identifierFromBytes('msg', row.retryOf),
    attempts: [],
  }
}

/** store/README.md "Tables": the API's states are finer than the stored ones. `search.ts` says the same in SQL. */
export function stateOf(row: StoredStateFacts, now: number): MessageState {
  if (row.state === 'bounced' && row.bounceCategory === 'expired') return 'expired'
  if (row.state !== 'waiting') return row.state
  if (row.attempts > 0 || row.pathFailures > 0) return 'deferred'
  return row.sendAt !== null && row.sendAt > now ? 'scheduled' : 'queued'
}

/** What the row does not say follows from its state: it waits for its start, or for the next try of the schedule. */
function waitingForOf(row: MessageRow, now: number): WaitingFor | null {
  if (row.state !== 'waiting' || row.nextAt <= now) return null
  if (row.waitingFor !== null) return row.waitingFor
  const state = stateOf(row, now)
  if (state === 'scheduled') return 'send_at'
  return state === 'deferred' ? 'retry_delay' : null
}

export const variablesFrom = (text: string | null): Variables => (text === null ? {} : (JSON.parse(text) as Variables))

function bounceOf(row: MessageRow): MessageView['bounce'] {
  const { bounceType: type, bounceCategory: category, bounceCode: code, bounceDescription: description } = row
  if (type === null || category === null || code === null || description === null) return null
  const at = row.bounceAt ?? row.finalAt ?? row.createdAt
  return { type, category, code, description, at, isLate: row.late === 1 }
}
