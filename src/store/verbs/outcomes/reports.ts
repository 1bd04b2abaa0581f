/**
 * Reports about messages: what follows from each, with its event, in one transaction and once for a message and kind.
 *
 *   bounce      delivered -> bounced, late, with its bounce     email.bounced, suppression where one is due
 *   bounce      any other state stays                           a line in the timeline
 *   complaint   no change of state                              email.complained, suppression
 *   opt-out     no change of state                              email.unsubscribed, suppression
 *   note        no change of state                              a line in the timeline
 *
 * Of a message that retention removed its trace is enough for a complaint or an opt-out; anything else changes nothing.
 * A bounce of a message that is `sending` is put off: its host may have taken it and reported back faster than the
 * delivery was recorded. Simulated recipients get the events and are never suppressed (http/README.md "Simulated
 * recipients").
 */
import type { Database } from '../../engine/database.ts'
import { DAY } from '../../../base/clock.ts'
import { unreachable } from '../../../base/errors.ts'
import { bouncedData, complainedData, unsubscribedData, type EventKind } from '../../../mail/event.ts'
import { isSimulated } from '../../../mail/simulator.ts'
import type { ReportedFact, UnmatchedReport } from '../../records/report-records.ts'
import type { SuppressionReason } from '../../records/suppression-records.ts'
import { createBounceWriter, createEventRecorder, newEvent } from '../events/record-events.ts'
import { createFindRemoved } from '../messages/removed-message.ts'
import { createEventStatistics } from '../ips/ip-statistics.ts'
import { createRecipientSuppression } from '../suppressions/suppressions.ts'
import { ERASED } from '../tools/stored-address.ts'
import { oneColumn } from '../tools/statements.ts'
import { utcDay } from '../../../base/utc-day.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'
import { getNamed } from '../tools/stored-identifier.ts'

const MOST_KEPT = 200
const MOST_LOOKED_AT = 10_000

interface ReportedRow {
  seq: number
  state: 'waiting' | 'sending' | 'delivered' | 'bounced' | 'suppressed' | 'canceled'
  recipient: string
  recipientDomain: string
  isp: string | null
  /** When it ended; before that, when it was to be sent. */
  sentAt: number
  isTest: number
}

/** What a fact brings beside its entry in `reports`. */
interface Consequence {
  event: EventKind
  data: Record<string, string>
  suppression: SuppressionReason | null
}

export function createRecordReport(database: Database): Verb<'recordReport'> {
  const find = database.prepare<[Buffer], ReportedRow>(`
    select
      messages.seq, messages.state, messages.recipient, messages.recipient_domain as recipientDomain, messages.isp,
      coalesce(messages.final_at, contents.send_at, messages.created_at) as sentAt, contents.is_test as isTest
    from messages
    cross join contents on contents.content_id = messages.content_id
    where messages.id = ?`)
  const addReport = database.prepare<[number, string, number]>(`
    insert into reports (message_seq, kind, at) values (?, ?, ?) on conflict do nothing`)
  const suppress = createRecipientSuppression(database)
  const events = createEventRecorder(database)
  const count = createReportCounter(database)
  const apply = createFactWriter(database)
  const recordOfRemoved = createRemovedReports(database)

  return ({ messageId, now, sentSince, fact }) => {
    const row = getNamed(find, 'msg', messageId)
    if (row === undefined) return recordOfRemoved({ messageId, now, sentSince, fact })
    // A report may name whom nothing may name any more.
    if (row.recipient === ERASED) return { kind: 'unknown-message' }
    if (row.sentAt < sentSince) return { kind: 'too-old' }
    if (fact.kind === 'bounce' && row.state === 'sending') return { kind: 'under-way' }
    if (addReport.run(row.seq, reportKind(fact, row), now).changes === 0) return { kind: 'repeated' }

    const { event, data, suppression } = apply(fact, row, messageId, now)
    events.record([newEvent(event, data, row.seq, now)], now)
    if (event === 'email.reported') return { kind: 'noted' }
    count(fact, row, now)
    const isSimulatedRow = isSimulated(row.recipientDomain)
    const isSuppressed =
      suppression !== null && !isSimulatedRow && suppress({ ...row, id: messageId }, suppression, 'all', now)
    return { kind: 'recorded', isp: row.isp, isSimulated: isSimulatedRow, isSuppressed }
  }
}

/**
 * What the recipient of a removed message wants still holds, as long as its trace tells who that is. The event goes out
 * whenever the address comes onto the list: there is no row that would remember the report.
 */
function createRemovedReports(database: Database): Verb<'recordReport'> {
  const find = createFindRemoved(database)
  const suppress = createRecipientSuppression(database)
  const events = createEventRecorder(database)
  return ({ messageId, now, sentSince, fact }) => {
    const removed = fact.kind === 'complaint' || fact.kind === 'opt-out' ? getNamed(find, 'msg', messageId) : undefined
    if (removed === undefined) return { kind: 'unknown-message' }
    const { recipient, recipientDomain, endedAt } = removed
    if (endedAt < sentSince) return { kind: 'too-old' }
    const isComplaint = fact.kind === 'complaint'
    const reason = isComplaint ? 'complaint' : 'unsubscribe'
    if (isSimulated(recipientDomain) || !suppress({ ...removed, id: messageId }, reason, 'all', now)) {
      return { kind: 'repeated' }
    }
    const event = isComplaint
      ? newEvent('email.complained', complainedData(messageId, recipient, recipientDomain), null, now)
      : newEvent('email.unsubscribed', unsubscribedData(messageId, recipient, 'all'), null, now)
    events.record([event], now)
    return { kind: 'recorded', isp: null, isSimulated: false, isSuppressed: true }
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

function createFactWriter(database: Database) {
  // When it was delivered stays known: that is `final_at`; when the late bounce came is `bounces.at`.
  const end = database.prepare<[number]>(`update messages set state = 'bounced' where seq = ?`)
  const markLate = database.prepare<[number, number]>('update bounces set late = 1, at = ? where message_seq = ?')
  const addComplaint = database.prepare<[number, number, string]>(`
    insert into complaints (message_seq, at, feedback_type) values (?, ?, ?) on conflict do nothing`)
  const addBounce = createBounceWriter(database)
  const isSecond = createEarlierBounceCheck(database)

  return (fact: ReportedFact, row: ReportedRow, messageId: string, now: number): Consequence => {
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
  const find = oneColumn(database)<[string, number, number, number], number>(`
    select 1
    from messages
    cross join bounces on bounces.message_seq = messages.seq
    cross join contents on contents.content_id = messages.content_id
    where messages.recipient = ? and bounces.type = 'hard' and contents.is_test = ?
      and coalesce(bounces.at, messages.final_at) between ? and ?
    limit 1`)
  return ({ recipient, isTest }, now) => find.get(recipient, isTest, now - 30 * DAY, now - DAY) !== undefined
}

/**
 * How much mail went out since a time, and how many reports about any came back: among those about the newest messages
 * that any came for. Where there are more, the exact number says nothing more and is not looked for.
 */
export function createReportReads(database: Database) {
  const sent = database.prepare<[string], { messages: number | null }>(`
    select sum(ip_days.messages) as messages
    from egress_ips
    cross join ip_days on ip_days.ip = egress_ips.ip and ip_days.isp = '*' and ip_days.day >= ?`)
  const bounces = database.prepare<[number, number], { reports: number }>(`
    select count(*) as reports
    from (select kind, at from reports order by message_seq desc limit +?) as reports
    where kind in ('bounce', 'early-bounce') and at >= ?`)
  const complaints = database.prepare<[number, number], { reports: number }>(`
    select count(*) as reports
    from (select at from complaints order by message_seq desc limit +?) as complaints
    where at >= ?`)
  const list = database.prepare<[number], UnmatchedReport>(`
    select at, kind, sender, recipient, remote_address as remoteAddress, bytes
    from unmatched_reports
    order by unmatched_seq desc
    limit +?`)

  return {
    reportSums: (since) => ({
      sent: sent.get(utcDay(since))?.messages ?? 0,
      bounces: bounces.get(MOST_LOOKED_AT, since)?.reports ?? 0,
      complaints: complaints.get(MOST_LOOKED_AT, since)?.reports ?? 0,
    }),
    listUnmatchedReports: (limit) => list.all(limit),
  } satisfies SomeVerbs
}

/** The sample of reports that name none of our messages: the newest few, for the operator to look at. */
export function createUnmatchedReportWrites(database: Database) {
  const add = database.prepare<[number, string, string, string, string, Uint8Array]>(`
    insert into unmatched_reports (at, kind, sender, recipient, remote_address, bytes)
    values (?, ?, ?, ?, ?, ?)`)
  const dropOldest = database.prepare<[number]>(`
    delete from unmatched_reports where unmatched_seq <= (select max(unmatched_seq) from unmatched_reports) - ?`)
  const forget = database.prepare<[number]>('delete from unmatched_reports where at < ?')
  return {
    keepUnmatchedReport({ at, kind, sender, recipient, remoteAddress, bytes }) {
      add.run(at, kind, sender, recipient, remoteAddress, bytes)
      dropOldest.run(MOST_KEPT)
    },
    forgetUnmatchedReports: (before) => forget.run(before).changes,
  } satisfies SomeVerbs
}
