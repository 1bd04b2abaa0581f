/**
 * What becomes of rows that were claimed: judges what a try led to, logs and counts it, tells shaping what the path
 * said, and hands the outcome to the recorder; or gives the row back to the queue without an attempt.
 *
 * Each claim that is in a thread is settled exactly once; a second result for it is ignored. Warmup allowance goes back
 * with every try that ended before RCPT was written. src/README.md "The road of one email" (steps 12 and 13), 3.4, 6.5,
 * 10.2.
 */
import { MINUTE } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { errorText, unreachable } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { LiveConfiguration } from '../../config/live-configuration.ts'
import type { MailboxProvider } from '../../egress/shaping/mailbox-provider.ts'
import type { Egress } from '../../egress/egress.ts'
import type { Shaping, TryNote } from '../../egress/shaping/shaping.ts'
import { createClassifier } from '../../mail/reply/classify-reply.ts'
import type { ConnectionFacts, DeliveryAttempt } from '../../mail/reply/delivery-outcome.ts'
import type { Grant } from '../../store/records/queue-records.ts'
import type { ClaimedMessage } from '../../store/records/records.ts'
import type { Store } from '../../store/store.ts'
import { createAttemptLog } from './attempt-log.ts'
import type { ClaimHistory } from './claim-history.ts'
import type { DotMarks } from './dot-marks.ts'
import { decideIp } from './ip-decision.ts'
import { createJudgeAddress } from './judge-address.ts'
import { createJudgeReply } from './judge-reply.ts'
import type { JudgeReply, JudgeRequest, Judgement } from './judge-reply.ts'
import type { OutcomeRecorder } from './outcome-recorder.ts'
import { eventsOf } from './outcome-events.ts'
import type { PlacedRow } from '../place/placed-row.ts'
import { judgeDns } from './judge-dns.ts'
import type { NoHosts } from '../route/route-message.ts'
import { NO_CONNECTION } from '../protocol/try-result.ts'
import type { TryEnd, TryResult } from '../protocol/try-result.ts'

export interface SettleTries {
  /** These rows are in this thread now. */
  begin(rows: readonly PlacedRow[], thread: number): void
  settle(results: readonly TryResult[]): void
  settleDns(answer: NoHosts, messages: readonly ClaimedMessage[]): void
  /** A row that did not go to a thread. */
  giveBack(row: PlacedRow, how: Omit<Parameters<OutcomeRecorder['giveBack']>[1], 'refund'>): void
  /** A thread died with its rows: those whose dot may have gone out are possible duplicates. */
  giveBackThread(thread: number): void
  /** Rows that a thread does not have, though it was given them: as if it had died with them. */
  giveBackLost(claims: readonly number[]): void
  /** What is still in a thread waits for the answer to its dot, and nobody waits with it any more. Ends no message. */
  endUnanswered(): void
  /** What is in threads. */
  held(): Iterable<{ row: PlacedRow; thread: number }>
  /** The store's row of a claim that is in a thread; undefined: it is in none any more. */
  keyInThread(claim: number): number | undefined
}

export interface SettleTriesOptions {
  store: Pick<Store, 'searchMessages'>
  clock: Clock
  logger: Logger
  metrics: Metrics
  egress: Pick<Egress, 'disable' | 'ipsUsedBy' | 'noteRefund'>
  shaping: Pick<Shaping, 'giveBack' | 'noteTry' | 'waitOf'>
  configuration: LiveConfiguration
  recorder: Pick<OutcomeRecorder, 'record' | 'recordLater' | 'giveBack'>
  marks: Pick<DotMarks, 'isMarked' | 'forget'>
  history: Pick<ClaimHistory, 'note'>
  /** These rows have left their threads: their paths may take others. */
  onLeft: (rows: readonly PlacedRow[]) => void
}

type Judged = JudgeRequest['end']

/** A try as far as it came. */
interface Tried {
  facts: ConnectionFacts
  at: number
  durationMilliseconds: number
  ip: string | null
  operator: MailboxProvider | null
  transcript: string | null
  refund: Grant | null
}

/** A message that could not be rendered or signed waits for somebody to look. */
const LOOK_AGAIN_AFTER = 5 * MINUTE

export function createSettleTries(options: SettleTriesOptions): SettleTries {
  const { clock, logger, metrics, egress, shaping, configuration, recorder, marks } = options
  const judgeAddress = createJudgeAddress(options.store)
  const inThread = new Map<number, { row: PlacedRow; thread: number }>()
  let rules = rulesNow()
  configuration.onChange(() => {
    rules = rulesNow()
  })

  function rulesNow(): { judge: JudgeReply; logTry: ReturnType<typeof createAttemptLog> } {
    const {
      server: { delivery, log },
      bounces,
    } = configuration.current()
    return {
      judge: createJudgeReply(delivery, createClassifier(bounces.rules)),
      logTry: createAttemptLog({ logger, metrics, recipients: log.recipients }),
    }
  }

  /** Everything that follows from a judgement. */
  function record(message: ClaimedMessage, tried: Tried, judgement: Judgement): void {
    const { facts, at, durationMilliseconds, ip, operator, transcript, refund } = tried
    const { outcome, stage, reply, category } = judgement
    const attempt: DeliveryAttempt = { ...facts, at, durationMilliseconds, ip, result: outcome.kind, stage, reply }
    const isp = operator?.isp ?? null
    rules.logTry({ message, attempt, judgement, provider: operator?.provider ?? null })
    if (refund !== null) egress.noteRefund(refund.ip, refund.isp)
    const now = clock.now()
    const poolIps = (): string[] => egress.ipsUsedBy(message.pool).map(({ address }) => address)
    const settled = {
      key: message.key,
      claim: message.claim,
      attempt,
      outcome,
      isp,
      category,
      transcript,
      refund,
      ...decideIp({ outcome: outcome.kind, category, ip, message, poolIps, now }),
      events: eventsOf({ judgement, message, isp, now }),
    }
    const suppresses = judgeAddress(message, judgement, now)
    if (typeof suppresses === 'boolean') return recorder.record(message, counted({ ...settled, suppresses }))
    recorder.recordLater(
      message,
      suppresses.catch(notKnown).then((isDead) => counted({ ...settled, suppresses: isDead })),
    )
  }

  function counted<Settled extends { suppresses: boolean }>(settled: Settled): Settled {
    if (settled.suppresses) metrics.suppressions.inc({ reason: 'hard_bounce' })
    return settled
  }

  /** The outcome matters more than what follows from it. */
  function notKnown(thrown: unknown): false {
    logger.error({ error: errorText(thrown) }, 'earlier bounces of an address could not be read')
    return false
  }

  function settleRow(row: PlacedRow, result: TryResult): void {
    const { end, facts, startedAt, durationMilliseconds, transcript, wasRcptSent } = result
    const { message, route, ip } = row
    const refund = wasRcptSent ? null : row.grant
    if (end.kind === 'returned') {
      noteTry(row, { kind: 'neither' })
      // Of its message rate it has used nothing.
      if (row.facts.shaped !== null && !wasRcptSent) shaping.giveBack(row.facts.shaped, 1)
      return giveBackReturned(row, end, refund)
    }
    const judgement = judgeRow(row, end)
    noteTry(row, noteOf(end, judgement))
    const tried = {
      facts,
      at: startedAt,
      durationMilliseconds,
      ip: ip?.address ?? null,
      operator: route.provider,
      transcript,
      refund,
    }
    record(message, tried, judgement)
  }

  function judgeRow({ message, route, facts, isProbe }: PlacedRow, end: Judged): Judgement {
    const { provider } = route.provider
    const pathWait = facts.shaped === null ? 0 : shaping.waitOf(facts.shaped)
    return rules.judge({ end, message, now: clock.now(), provider, pathWait, isProbe })
  }

  function noteTry({ facts, lane }: PlacedRow, note: TryNote): void {
    if (facts.shaped !== null) shaping.noteTry(facts.shaped, lane, note)
  }

  const noTry = (): Omit<Tried, 'ip' | 'operator' | 'refund'> => ({
    facts: NO_CONNECTION,
    at: clock.now(),
    durationMilliseconds: 0,
    transcript: null,
  })

  function giveBack({ message }: PlacedRow, nextAt: number, refund: Grant | null): void {
    if (refund !== null) egress.noteRefund(refund.ip, refund.isp)
    recorder.giveBack(message, { nextAt, ...(refund === null ? {} : { refund }) })
  }

  function giveBackReturned(
    row: PlacedRow,
    { why, reason }: Extract<TryEnd, { kind: 'returned' }>,
    refund: Grant | null,
  ): void {
    const { message, ip } = row
    switch (why) {
      case 'stopping':
      case 'unmarked':
      // Somebody else has it, or it waits: then nothing comes of this.
      case 'stale':
        return giveBack(row, clock.now(), refund)
      case 'source-gone':
        if (ip === null) return giveBack(row, clock.now() + LOOK_AGAIN_AFTER, refund)
        egress.disable(ip.address, reason)
        return giveBack(row, clock.now(), refund)
      case 'not-renderable':
        logger.error({ message_id: message.id, domain: message.domain, reason }, 'message can not be rendered')
        return giveBack(row, clock.now() + LOOK_AGAIN_AFTER, refund)
      case 'too-late':
        // Due at once if our clock was wrong and is set right again; never a claim that comes back again and again.
        return giveBack(row, clock.now() < message.expiresAt ? message.expiresAt : message.acceptedAt, refund)
      default:
        unreachable(why)
    }
  }

  function leave(row: PlacedRow): void {
    inThread.delete(row.claim)
    marks.forget(row.claim)
  }

  /** Nobody knows how far their tries came; returns for how many the dot may have gone out. */
  function giveBackUnheard(rows: readonly PlacedRow[]): number {
    const now = clock.now()
    const wait = configuration.current().server.delivery.uncertain_retry
    let uncertain = 0
    for (const row of rows) {
      const isMarked = marks.isMarked(row.claim)
      if (isMarked) uncertain++
      leave(row)
      noteTry(row, { kind: 'neither' })
      // Whether RCPT was sent is not known: the allowance stays spent.
      recorder.giveBack(row.message, isMarked ? { nextAt: now + wait, isPossibleDuplicate: true } : { nextAt: now })
    }
    return uncertain
  }

  return {
    begin(rows, thread) {
      for (const row of rows) inThread.set(row.claim, { row, thread })
    },
    settle(results) {
      const left: PlacedRow[] = []
      for (const result of results) {
        const found = inThread.get(result.claim)
        if (found === undefined) continue
        leave(found.row)
        options.history.note('result', found.row.message, result.end.kind)
        left.push(found.row)
        settleRow(found.row, result)
      }
      options.onLeft(left)
    },
    settleDns(answer, messages) {
      const jitter = configuration.current().server.delivery.retry_jitter
      for (const message of messages) {
        const judgement = judgeDns(answer, message, clock.now(), jitter)
        record(message, { ...noTry(), ip: null, operator: null, refund: null }, judgement)
      }
    },
    giveBack(row, how) {
      const { message, grant } = row
      if (grant !== null) egress.noteRefund(grant.ip, grant.isp)
      recorder.giveBack(message, { ...how, ...(grant === null ? {} : { refund: grant }) })
    },
    giveBackThread(thread) {
      const rows = [...inThread.values()].filter((entry) => entry.thread === thread).map(({ row }) => row)
      const uncertain = giveBackUnheard(rows)
      metrics.leasesRecovered.inc(rows.length)
      logger.warn({ thread, messages: rows.length, uncertain }, 'messages taken back from a delivery thread')
      options.onLeft(rows)
    },
    giveBackLost(claims) {
      const rows = claims.flatMap((claim) => inThread.get(claim)?.row ?? [])
      giveBackUnheard(rows)
      options.onLeft(rows)
    },
    endUnanswered() {
      for (const { row } of inThread.values()) {
        const isMarked = marks.isMarked(row.claim)
        leave(row)
        if (!isMarked) {
          recorder.giveBack(row.message, { nextAt: clock.now() })
          continue
        }
        // A second lost answer would end it, and this one was not waited for.
        if (row.message.ambiguousCount > 0) {
          recorder.giveBack(row.message, { nextAt: clock.now(), isPossibleDuplicate: true })
          continue
        }
        const end: TryEnd = { kind: 'unanswered', reason: 'the server stopped before the answer came' }
        const nothing = { durationMilliseconds: 0, facts: NO_CONNECTION, transcript: null, wasRcptSent: true }
        settleRow(row, { ...nothing, claim: row.claim, startedAt: clock.now(), end })
      }
    },
    held: () => inThread.values(),
    keyInThread: (claim) => inThread.get(claim)?.row.message.key,
  }
}

/** What a row that came back says of its path. Failed connections speak for themselves. */
function noteOf(end: Judged, { category }: Judgement): TryNote {
  if (end.kind === 'accepted') return { kind: 'delivered' }
  if (end.kind !== 'refused' || category === null) return { kind: 'neither' }
  return { kind: 'refused', reply: end.reply, stage: end.stage, category }
}
