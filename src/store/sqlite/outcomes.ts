/**
 * Recording what tries led to: attempt and its dialogue, state or next time, suppression, events and webhook
 * deliveries in one transaction.
 *
 *   sending -> delivered                        the host took it
 *   sending -> waiting, one attempt more        deferred, ambiguous
 *   sending -> waiting, one path failure more   path-failed: the message is not to blame
 *   sending -> bounced, with its bounce         bounced, expired
 *
 * A batch may be repeated: a try that is recorded already changes nothing. A try whose row this epoch no longer holds
 * is recorded as stale; only `delivered` still counts, because the recipient has the mail (engine.md 3.3).
 */
import type { Database } from 'better-sqlite3'
import { unreachable } from '../../base/errors.ts'
import { identifierFromBytes, newIdentifier } from '../../base/identifier.ts'
import type { DeliveryAttempt } from '../../mail/delivery-outcome.ts'
import type { OutcomeRecord, RecordOutcomesRequest } from '../records.ts'
import { createBounceWriter } from './bounces.ts'
import { createEventRecorder } from './record-events.ts'
import type { RecordedEvent } from './record-events.ts'
import { createSuppressionWriter } from './suppressions.ts'

interface HeldRow {
  state: string
  leaseEpoch: number | null
}

export function createRecordOutcomes(database: Database): (request: RecordOutcomesRequest) => void {
  const findHold = database.prepare<[number], HeldRow>(
    'select state, lease_epoch as leaseEpoch from messages where seq = ?',
  )
  const addAttempt = createAttemptWriter(database)
  const addTranscript = createTranscriptWriter(database)
  const changeState = createStateChange(database)
  const suppress = createOutcomeSuppression(database)
  const events = createEventRecorder(database)

  return ({ epoch, now, outcomes }) => {
    const happened: RecordedEvent[] = []
    for (const record of outcomes) {
      const row = findHold.get(record.key)
      if (row === undefined) continue
      const counts = isHeld(row, epoch) || (row.state === 'waiting' && record.outcome.kind === 'delivered')
      if (!addAttempt(record.key, record.attempt, counts)) continue
      addTranscript(record)
      happened.push(attemptedEvent(record, now))
      if (!counts) continue
      changeState(record, now)
      if (record.suppresses) suppress(record.key, now)
      for (const event of record.events) happened.push({ ...event, messageKey: record.key })
    }
    events.record(happened, now)
  }
}

/** A row that another epoch holds came to it through a recovery, which has marked the possible duplicate already. */
const isHeld = (row: HeldRow, epoch: number): boolean => row.state === 'sending' && row.leaseEpoch === epoch

/** Returns false when this try is recorded already. */
function createAttemptWriter(
  database: Database,
): (key: number, attempt: DeliveryAttempt, counts: boolean) => boolean {
  const add = database.prepare(`
    insert into attempts
      (message_seq, at, result, duration_milliseconds, ip, host, local_address, remote_address, tls, stage, reply,
      stale)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict do nothing`)
  return (key, attempt, counts) => {
    const { changes } = add.run(
      key, attempt.at, attempt.result, Math.round(attempt.durationMilliseconds), attempt.ip, attempt.host,
      attempt.localAddress, attempt.remoteAddress, attempt.tls, attempt.stage, attempt.reply, counts ? 0 : 1,
    )
    return changes === 1
  }
}

/** Of one dialogue: a host that talks without end fills no disk. */
const MOST_TRANSCRIPT_BYTES = 16 * 1_024

function createTranscriptWriter(database: Database): (record: OutcomeRecord) => void {
  const add = database.prepare<[number, number, string, string]>(
    'insert into transcripts (message_seq, at, result, dialogue) values (?, ?, ?, ?)',
  )
  return ({ key, attempt, transcript }) => {
    if (transcript !== null) add.run(key, attempt.at, attempt.result, boundedText(transcript, MOST_TRANSCRIPT_BYTES))
  }
}

/** The beginning of a text that fits into so many bytes of UTF-8, without a character cut in two. */
function boundedText(text: string, mostBytes: number): string {
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
    where messages.seq = ?`)
  const add = createSuppressionWriter(database)
  return (key, now) => {
    const row = find.get(key)
    if (row === undefined) return
    add({
      id: newIdentifier('sup', now), email: row.recipient, reason: 'hard_bounce', scope: 'all',
      isTest: row.isTest === 1, messageId: identifierFromBytes('msg', row.id), createdAt: now,
    })
  }
}

function createStateChange(database: Database): (record: OutcomeRecord, now: number) => void {
  const end = database.prepare<[string, number, number, string | null, string | null, number]>(`
    update messages
    set state = ?, final_at = ?, attempts = attempts + ?, sticky_ip = coalesce(sticky_ip, ?), isp = coalesce(?, isp),
      lease_epoch = null, lease_until = null
    where seq = ?`)
  const defer = database.prepare<[number, number, number, string | null, string | null, number]>(`
    update messages
    set state = 'waiting', next_at = ?, attempts = attempts + 1, path_failures = 0,
      ambiguous_count = ambiguous_count + ?, possible_duplicate = max(possible_duplicate, ?),
      sticky_ip = coalesce(sticky_ip, ?), isp = coalesce(?, isp), lease_epoch = null, lease_until = null
    where seq = ?`)
  const putBack = database.prepare<[number, string | null, number]>(`
    update messages
    set state = 'waiting', next_at = ?, path_failures = path_failures + 1, isp = coalesce(?, isp),
      lease_epoch = null, lease_until = null
    where seq = ?`)
  const addBounce = createBounceWriter(database)

  return ({ key, attempt, outcome, isp }, now) => {
    switch (outcome.kind) {
      case 'delivered':
        end.run('delivered', now, 1, attempt.ip, isp, key)
        return
      case 'deferred':
        defer.run(outcome.retryAt, 0, 0, attempt.ip, isp, key)
        return
      case 'ambiguous':
        defer.run(outcome.retryAt, 1, 1, attempt.ip, isp, key)
        return
      case 'path-failed':
        putBack.run(outcome.retryAt, isp, key)
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

/** The line of the timeline that every try leaves. */
function attemptedEvent({ key, attempt }: OutcomeRecord, now: number): RecordedEvent {
  const data: Record<string, string> = { result: attempt.result, stage: attempt.stage }
  if (attempt.ip !== null) data['ip'] = attempt.ip
  if (attempt.host !== null) data['mx'] = attempt.host
  return { id: newIdentifier('evt', now), kind: 'email.attempted', at: attempt.at, data, messageKey: key }
}
