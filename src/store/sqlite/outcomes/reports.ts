/**
 * Reports about messages: what follows from each, with its event, in one transaction and once for a message and kind.
 *
 *   bounce      delivered -> bounced, late, with its bounce     email.bounced, suppression where one is due
 *   bounce      any other state stays                           a line in the timeline
 *   complaint   no change of state                              email.complained, suppression
 *   opt-out     no change of state                              email.unsubscribed, suppression
 *   note        no change of state                              a line in the timeline
 *
 * A bounce of a message that is `sending` is put off: its host may have taken it and reported back faster than the
 * delivery was recorded. Simulated recipients get the events and are never suppressed (http/README.md "Simulated
 * recipients").
 */
import type { Database } from 'better-sqlite3'
import { DAY } from '../../../base/clock.ts'
import { unreachable } from '../../../base/errors.ts'
import { identifierToBytes, newIdentifier } from '../../../base/identifier.ts'
import { bouncedData, complainedData, unsubscribedData, type EventKind } from '../../../mail/event.ts'
import { isSimulated } from '../../../mail/simulator.ts'
import type { ReportedFact, ReportRecord, ReportResult } from '../../records/report-records.ts'
import type { SuppressionReason } from '../../records/suppression-records.ts'
import { createBounceWriter } from '../events/bounces.ts'
import { createEventStatistics } from '../ips/ip-statistics.ts'
import { createEventRecorder } from '../events/record-events.ts'
import { createSuppressionWriter } from '../suppressions/suppressions.ts'

interface ReportedRow {
  seq: number
  state: 'waiting' | 'sending' | 'delivered' | 'bounced' | 'suppressed' | 'canceled'
  recipient: string
  recipientDomain: string
  isp: string | null
  createdAt: number
  isTest: number
}

/** What a fact brings beside its entry in `reports`. */
interface Consequence {
  event: EventKind
  data: Record<string, string>
  suppression: SuppressionReason | null
}

export function createRecordReport(database: Database): (report: ReportRecord) => ReportResult {
  const find = database.prepare<[Buffer], ReportedRow>(`
    select
      messages.seq, messages.state, messages.recipient, messages.recipient_domain as recipientDomain, messages.isp,
      messages.created_at as createdAt, contents.is_test as isTest
    from messages
    cross join contents on contents.content_id = messages.content_id
    where messages.id = ?`)
  const addReport = database.prepare<[number, string, number]>(
    'insert into reports (message_seq, kind, at) values (?, ?, ?) on conflict do nothing',
  )
  const suppress = createSuppressionWriter(database)
  const events = createEventRecorder(database)
  const count = createReportCounter(database)
  const apply = createFactWriter(database)

  return ({ messageId, now, acceptedSince, fact }) => {
    const bytes = identifierToBytes('msg', messageId)
    const row = bytes === undefined ? undefined : find.get(bytes)
    if (row === undefined) return { kind: 'unknown-message' }
    if (row.createdAt < acceptedSince) return { kind: 'too-old' }
    if (fact.kind === 'bounce' && row.state === 'sending') return { kind: 'under-way' }
    if (addReport.run(row.seq, reportKind(fact, row), now).changes === 0) return { kind: 'repeated' }

    const { event, data, suppression } = apply(fact, row, messageId, now)
    events.record([{ id: newIdentifier('evt', now), kind: event, at: now, data, messageKey: row.seq }], now)
    if (event === 'email.reported') return { kind: 'noted' }
    count(fact, row, now)
    const isSimulatedRow = isSimulated(row.recipientDomain)
    const isSuppressed =
      suppression !== null &&
      !isSimulatedRow &&
      suppress({
        id: newIdentifier('sup', now),
        email: row.recipient,
        reason: suppression,
        scope: 'all',
        isTest: row.isTest === 1,
        messageId,
        createdAt: now,
      })
    return { kind: 'recorded', isp: row.isp, isSimulated: isSimulatedRow, isSuppressed }
  }
}

/** For statistics and warmup gates; what changed no state counts for nothing. */
function createReportCounter(database: Database): (fact: ReportedFact, row: ReportedRow, now: number) => void {
  const begin = createEventStatistics(database)
  return (fact, { seq }, now) => {
    const statistics = begin()
    if (fact.kind === 'bounce') statistics.bounced(seq, fact.bounce.type, now, 'delivery')
    else if (fact.kind === 'complaint') statistics.complained(seq, now)
    statistics.flush(now)
  }
}

/** A bounce that came too early must not hide the one that counts. */
function reportKind(fact: ReportedFact, { state }: ReportedRow): string {
  if (fact.kind === 'note') return fact.about
  return fact.kind === 'bounce' && state === 'waiting' ? 'early-bounce' : fact.kind
}

function createFactWriter(
  database: Database,
): (fact: ReportedFact, row: ReportedRow, messageId: string, now: number) => Consequence {
  // When it was delivered stays known: that is `final_at`; when the late bounce came is `bounces.at`.
  const end = database.prepare<[number]>(`update messages set state = 'bounced' where seq = ?`)
  const markLate = database.prepare<[number, number]>('update bounces set late = 1, at = ? where message_seq = ?')
  const addComplaint = database.prepare<[number, number, string]>(
    'insert into complaints (message_seq, at, feedback_type) values (?, ?, ?) on conflict do nothing',
  )
  const addBounce = createBounceWriter(database)
  const isSecond = createEarlierBounceCheck(database)

  return (fact, row, messageId, now) => {
    const { seq, recipient } = row
    switch (fact.kind) {
      case 'bounce': {
        const { bounce, suppress } = fact
        if (row.state !== 'delivered') return note('bounce', `${bounce.code} ${bounce.description}`)
        const isDead = suppress === 'always' || (suppress === 'second' && isSecond(row, now))
        end.run(seq)
        addBounce(seq, bounce)
        markLate.run(now, seq)
        const data = bouncedData(messageId, recipient, bounce)
        return { event: 'email.bounced', data, suppression: isDead ? 'hard_bounce' : null }
      }
      case 'complaint': {
        addComplaint.run(seq, now, fact.feedbackType)
        const data = complainedData(messageId, recipient, row.isp ?? row.recipientDomain)
        return { event: 'email.complained', data, suppression: 'complaint' }
      }
      case 'opt-out': {
        const data = unsubscribedData(messageId, recipient, 'all')
        return { event: 'email.unsubscribed', data, suppression: 'unsubscribe' }
      }
      case 'note':
        return note(fact.about, fact.description)
      default:
        return unreachable(fact)
    }
  }
}

function note(report: string, description: string): Consequence {
  return { event: 'email.reported', data: { report, description }, suppression: null }
}

/**
 * mail/README.md "Categories": only the second such answer within 30 days, and at least 24 h after the first, calls it
 * dead.
 */
function createEarlierBounceCheck(database: Database): (row: ReportedRow, now: number) => boolean {
  const find = database
    .prepare<[string, number, number, number], number>(
      `
      select 1
      from messages
      cross join bounces on bounces.message_seq = messages.seq
      cross join contents on contents.content_id = messages.content_id
      where messages.recipient = ? and bounces.type = 'hard' and contents.is_test = ?
        and coalesce(bounces.at, messages.final_at) between ? and ?
      limit 1`,
    )
    .pluck()
  return ({ recipient, isTest }, now) => find.get(recipient, isTest, now - 30 * DAY, now - DAY) !== undefined
}
