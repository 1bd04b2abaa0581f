/**
 * Recording what tries led to.
 *
 *   sending -> delivered                        the host took it
 *   sending -> waiting, one attempt more        deferred, ambiguous
 *   sending -> waiting, one path failure more   path-failed: the message is not to blame
 *   sending -> bounced, with its bounce         bounced, expired
 *
 * A try that is recorded already changes nothing; one whose claim holds its row no more is stale (store/README.md
 * "Leases and claims").
 */
import type { Database } from '../../engine/database.ts'
import { unreachable } from '../../../base/errors.ts'
import { identifierFromBytes, newIdentifier } from '../../../base/identifier.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import type { OutcomeRecord } from '../../records/claim-records.ts'
import { createAllowanceRefund } from '../ips/allowance.ts'
import { createAttemptWriter } from '../messages/attempt-rows.ts'
import { createBounceWriter, createEventRecorder, type RecordedEvent } from '../events/record-events.ts'
import { createOutcomeStatistics } from '../ips/ip-statistics.ts'
import { firstOfEach } from '../tools/statements.ts'
import { createRecipientSuppression } from '../suppressions/suppressions.ts'
import type { Verb } from '../tools/verb-types.ts'

interface HeldRow {
  state: string
  leaseEpoch: number | null
  claim: number | null
  /** Before this outcome. */
  attempts: number
  pool: string
}

type OutcomesRequest = Parameters<Verb<'recordOutcomes'>>[0]

export function createRecordOutcomes(database: Database): (requests: readonly OutcomesRequest[]) => void[] {
  const findHold = database.prepare<[number], HeldRow>(`
    select messages.state, messages.lease_epoch as leaseEpoch, messages.claim, messages.attempts,
      pools.name as pool
    from messages
    cross join pools on pools.pool_id = messages.pool_id
    where messages.seq = +?`)
  const findAttempt = database.prepare<[number, number, string], number>(`
    select 1 from attempts where message_seq = ? and at = ? and result = ?`)
  const markDuplicate = database.prepare<[number]>('update messages set possible_duplicate = 1 where seq = ?')
  const addAttempt = createAttemptWriter(database)
  const addTranscript = createTranscriptWriter(database)
  const changeState = createStateChange(database)
  const refundAllowance = createAllowanceRefund(database)
  const beginStatistics = createOutcomeStatistics(database)
  const suppress = createOutcomeSuppression(database)
  const events = createEventRecorder(database)

  return (requests) => {
    const records = requests.flatMap(({ epoch, now, outcomes }) => outcomes.map((record) => ({ record, epoch, now })))
    const last = Math.max(...requests.map(({ now }) => now))
    const happened: RecordedEvent[] = []
    const statistics = beginStatistics(
      last,
      records.map(({ record }) => record),
    )
    const recordEvents = events.begin(records.map(({ record: { key } }) => key))
    for (const part of onceEach(records)) {
      const rows = firstOfEach(
        findHold,
        part.map(({ record: { key } }) => [key]),
      )
      const tried = part.map((each, index) => statistics.askFirstTried(each.record, (rows[index]?.attempts ?? 0) > 0))
      for (const [index, { record, epoch, now }] of part.entries()) {
        const row = rows[index]
        if (row === undefined) continue
        const { key, attempt, claim } = record
        const isDelivered = record.outcome.kind === 'delivered'
        const isOurs = isHeld(row, epoch, claim)
        // What was recorded already has given its row back.
        if (!isOurs && findAttempt.get(key, attempt.at, attempt.result) !== undefined) continue
        const counts = isOurs || (row.state === 'waiting' && isDelivered)
        addAttempt(key, attempt, counts)
        addTranscript(record)
        if (record.refund !== null) refundAllowance(record.refund)
        statistics.add(record, { firstAt: tried[index]?.() ?? null, isCounted: counts && row.pool !== CAPTURE_POOL })
        happened.push(attemptedEvent(record, now))
        if (!counts && isDelivered && row.state === 'sending') markDuplicate.run(key)
        if (!counts) continue
        changeState(record, now)
        if (record.suppresses) suppress(key, now)
        for (const event of record.events) happened.push({ ...event, messageKey: key })
      }
    }
    statistics.flush()
    recordEvents(happened, last)
    return requests.map(() => undefined)
  }
}

/** An outcome with what its request says. */
interface Recorded {
  record: OutcomeRecord
  epoch: number
  now: number
}

/** In parts in which no message is there twice: the second outcome of one finds what the first has done. */
function onceEach(records: readonly Recorded[]): Recorded[][] {
  const parts: Recorded[][] = []
  const counts = new Map<number, number>()
  for (const each of records) {
    const { key } = each.record
    const earlier = counts.get(key) ?? 0
    counts.set(key, earlier + 1)
    const part = (parts[earlier] ??= [])
    part.push(each)
  }
  return parts
}

const isHeld = (row: HeldRow, epoch: number, claim: number): boolean =>
  row.state === 'sending' && row.leaseEpoch === epoch && row.claim === claim

/** Of one dialogue: a host that talks without end fills no disk. */
const MOST_TRANSCRIPT_BYTES = 16 * 1_024
/** Of one unit of a JavaScript string, in UTF-8. */
const MOST_BYTES_PER_UNIT = 3

function createTranscriptWriter(database: Database): (record: OutcomeRecord) => void {
  const add = database.prepare<[number, number, string, string]>(`
    insert into transcripts (message_seq, at, result, dialogue) values (?, ?, ?, ?)`)
  return ({ key, attempt, transcript }) => {
    if (transcript !== null) add.run(key, attempt.at, attempt.result, boundedText(transcript, MOST_TRANSCRIPT_BYTES))
  }
}

/** The beginning of a text that fits into so many bytes of UTF-8, without a character cut in two. */
function boundedText(text: string, mostBytes: number): string {
  if (text.length * MOST_BYTES_PER_UNIT <= mostBytes) return text
  const bytes = new Uint8Array(mostBytes)
  const { read } = new TextEncoder().encodeInto(text, bytes)
  return text.slice(0, read)
}

/** Puts the recipient of a message onto the list of the message's mode. */
function createOutcomeSuppression(database: Database): (key: number, now: number) => void {
  const find = database.prepare<[number], { id: Buffer; recipient: string; isTest: number }>(`
    select messages.id, messages.recipient, contents.is_test as isTest
    from messages
    cross join contents on contents.content_id = messages.content_id
    where messages.seq = +?`)
  const suppress = createRecipientSuppression(database)
  return (key, now) => {
    const row = find.get(key)
    if (row !== undefined) suppress({ ...row, id: identifierFromBytes('msg', row.id) }, 'hard_bounce', 'all', now)
  }
}

function createStateChange(database: Database): (record: OutcomeRecord, now: number) => void {
  const end = database.prepare<[string, number, number, string | null, string | null, number]>(`
    update messages
    set state = ?, final_at = ?, attempts = attempts + ?, last_ip = coalesce(?, last_ip), isp = coalesce(?, isp),
      keep_ip_until = null, avoid_ips = null, waiting_for = null, dot_sent = 0, lease_epoch = null, claim = null,
      lease_until = null
    where seq = ?`)
  const defer = createDeferral(database)
  const addBounce = createBounceWriter(database)

  return (record, now) => {
    const { key, attempt, outcome, isp } = record
    switch (outcome.kind) {
      case 'delivered':
        end.run('delivered', now, 1, attempt.ip, isp, key)
        return
      case 'deferred':
      case 'ambiguous':
      case 'path-failed':
        defer(record, outcome.kind, outcome.retryAt)
        return
      case 'bounced':
      case 'expired':
        // Without a host nobody was asked: the DNS gave the answer, and that is no attempt.
        end.run('bounced', now, attempt.host === null ? 0 : 1, attempt.ip, isp, key)
        addBounce(key, outcome.bounce)
        return
      default:
        unreachable(outcome)
    }
  }
}

/** Back into the queue after a try. */
function createDeferral(
  database: Database,
): (record: OutcomeRecord, kind: 'deferred' | 'ambiguous' | 'path-failed', retryAt: number) => void {
  const defer = database.prepare<(string | number | null)[]>(`
    update messages
    set state = 'waiting', next_at = ?, attempts = attempts + 1, path_failures = 0,
      ambiguous_count = ambiguous_count + ?, possible_duplicate = max(possible_duplicate, ?),
      last_ip = iif(?, iif(attempts = 0, null, last_ip), coalesce(?, last_ip)), isp = coalesce(?, isp),
      keep_ip_until = ?, avoid_ips = ?, waiting_for = null, dot_sent = 0, lease_epoch = null, claim = null,
      lease_until = null
    where seq = ?`)
  // After an attempt, last_ip is the IP that has paid for the message; before, it is only the one to keep.
  const putBack = database.prepare<(string | number | null)[]>(`
    update messages
    set state = 'waiting', next_at = ?, path_failures = path_failures + 1,
      last_ip = iif(attempts = 0, coalesce(?, last_ip), last_ip), isp = coalesce(?, isp), keep_ip_until = ?,
      avoid_ips = ?, waiting_for = null, dot_sent = 0, lease_epoch = null, claim = null, lease_until = null
    where seq = ?`)
  return ({ key, attempt, isp, keepIpUntil, avoidIps, refund }, kind, retryAt) => {
    const avoided = avoidIps.length === 0 ? null : JSON.stringify(avoidIps)
    if (kind === 'path-failed') {
      putBack.run(retryAt, attempt.ip, isp, keepIpUntil, avoided, key)
      return
    }
    const doubt = kind === 'ambiguous' ? 1 : 0
    // Whoever got the allowance back has paid for nothing: a retry from there has to take some.
    const isUnpaid = refund !== null
    const keptUntil = isUnpaid ? null : keepIpUntil
    defer.run(retryAt, doubt, doubt, isUnpaid ? 1 : 0, attempt.ip, isp, keptUntil, avoided, key)
  }
}

/** The line of the timeline that every try leaves. */
function attemptedEvent({ key, attempt }: OutcomeRecord, now: number): RecordedEvent {
  const data: Record<string, string> = { result: attempt.result, stage: attempt.stage }
  if (attempt.ip !== null) data['ip'] = attempt.ip
  if (attempt.host !== null) data['mx'] = attempt.host
  return { id: newIdentifier('evt', now), kind: 'email.attempted', at: attempt.at, data, messageKey: key }
}
