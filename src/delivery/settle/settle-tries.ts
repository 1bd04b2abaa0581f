/**
 * Keeps the rows that are in threads. Each leaves once: with a result, or given back when its thread died, lost it, or
 * was given up. A second result for a claim is ignored. Never throws. delivery/README.md "Stages".
 */
import { MINUTE, SECOND } from '../../base/clock.ts'
import { unreachable } from '../../base/errors.ts'
import type { Egress } from '../../egress/egress.ts'
import { SOCKET_WAIT, type Shaping, type TryNote } from '../../egress/shaping/shaping.ts'
import { createClassifier } from '../../mail/reply/classify-reply.ts'
import type { ClaimedMessage, GiveBack } from '../../store/records/claim-records.ts'
import type { Grant } from '../../store/records/queue-records.ts'
import type { PlacedRow } from '../place/place-messages.ts'
import { NO_CONNECTION, type TryEnd, type TryResult } from '../protocol/try-result.ts'
import type { NoHosts } from '../route/route-message.ts'
import type { ClaimHistory } from './claim-history.ts'
import type { DotMarks } from './dot-marks.ts'
import { judgeDns } from './judge-dns.ts'
import { createJudgeReply, type Judgement, type JudgeReply, type JudgeRequest } from './judge-reply.ts'
import type { OutcomeRecorder } from './outcome-recorder.ts'
import { createRecordTry, type RecordTryOptions } from './record-try.ts'

export type SettleTries = ReturnType<typeof createSettleTries>

interface SettleTriesOptions extends RecordTryOptions {
  egress: Egress
  shaping: Shaping
  recorder: OutcomeRecorder
  marks: DotMarks
  history: ClaimHistory
  /** Where TLS failed before, and plain text is sent (delivery/README.md "TLS"). */
  tlsMemory: { forget(ip: string, host: string): void }
  /** These rows have left their threads: their paths may take others. */
  onLeft: (rows: readonly PlacedRow[]) => void
}

/** A message that could not be rendered or signed waits for somebody to look. */
const LOOK_AGAIN_AFTER = 5 * MINUTE
/** One that could not be read waits for the store: the main thread knows when that is back, its thread a little later. */
const READ_AGAIN_AFTER = 2 * SECOND
const UNANSWERED: TryEnd = { kind: 'unanswered', reason: 'the server stopped before the answer came' }

export function createSettleTries(options: SettleTriesOptions) {
  const { clock, logger, metrics, recorder, marks, history, onLeft } = options
  const settleRow = createSettleRow(options)
  const inThread = new Map<number, { row: PlacedRow; thread: number }>()

  /** True: its dot may have gone out. */
  function leave(row: PlacedRow): boolean {
    const isMarked = marks.isMarked(row.claim)
    inThread.delete(row.claim)
    marks.forget(row.claim)
    return isMarked
  }

  /** Returns for how many the dot may have gone out. */
  function giveBackUnheard(rows: readonly PlacedRow[]): number {
    let uncertain = 0
    for (const row of rows) {
      const isMarked = leave(row)
      if (isMarked) uncertain++
      settleRow.giveBackUnheard(row, isMarked)
    }
    return uncertain
  }

  return {
    /** These rows are in this thread now. */
    begin(rows: readonly PlacedRow[], thread: number): void {
      for (const row of rows) inThread.set(row.claim, { row, thread })
    },
    settle(results: readonly TryResult[]): void {
      const left: PlacedRow[] = []
      for (const result of results) {
        const row = inThread.get(result.claim)?.row
        if (row === undefined) continue
        leave(row)
        history.note('result', row.message, result.end.kind)
        left.push(row)
        settleRow.settle(row, result)
      }
      onLeft(left)
    },
    settleDns(answer: NoHosts, messages: readonly ClaimedMessage[]): void {
      for (const message of messages) settleRow.settleDns(answer, message)
    },
    /** A row that did not go to a thread. */
    giveBack: (row: PlacedRow, how: Omit<GiveBack, 'refund'>) => settleRow.giveBack(row, how),
    /** A thread died with its rows: those whose dot may have gone out are possible duplicates. */
    giveBackThread(thread: number): void {
      const rows = [...inThread.values()].filter((entry) => entry.thread === thread).map(({ row }) => row)
      const uncertain = giveBackUnheard(rows)
      metrics.leasesRecovered.inc(rows.length)
      logger.warn({ thread, messages: rows.length, uncertain }, 'messages taken back from a delivery thread')
      onLeft(rows)
    },
    /** Rows that a thread does not have, though it was given them: as if it had died with them. */
    giveBackLost(claims: readonly number[]): void {
      const rows = claims.flatMap((claim) => inThread.get(claim)?.row ?? [])
      giveBackUnheard(rows)
      onLeft(rows)
    },
    /** What is still in a thread waits for the answer to its dot, and nobody waits with it any more. Ends no message. */
    endUnanswered(): void {
      for (const { row } of inThread.values()) {
        const { message, claim } = row
        const now = clock.now()
        if (!leave(row)) recorder.giveBack(message, { nextAt: now })
        // A second lost answer would end it, and this one was not waited for.
        else if (message.ambiguousCount > 0) recorder.giveBack(message, { nextAt: now, isPossibleDuplicate: true })
        else {
          const nothing = { durationMilliseconds: 0, facts: NO_CONNECTION, transcript: null, wasRcptSent: true }
          settleRow.settle(row, { ...nothing, claim, startedAt: now, end: UNANSWERED })
        }
      }
    },
    /** What is in threads. */
    held: (): Iterable<{ row: PlacedRow; thread: number }> => inThread.values(),
    /** The store's row of a claim that is in a thread; undefined: it is in none any more. */
    keyInThread: (claim: number) => inThread.get(claim)?.row.message.key,
  }
}

type Judged = JudgeRequest['end']

/**
 * What becomes of one row when its try has ended: judged and recorded, or given back to the queue without an attempt;
 * shaping hears what the path said. Warmup allowance goes back with every try that ended before RCPT was written.
 */
function createSettleRow(options: SettleTriesOptions) {
  const { clock, logger, egress, shaping, configuration, recorder, tlsMemory } = options
  const record = createRecordTry(options)
  let judge = judgeNow()
  configuration.onChange(() => void (judge = judgeNow()))

  function judgeNow(): JudgeReply {
    const { server, bounces } = configuration.current()
    return createJudgeReply(server.delivery, createClassifier(bounces.rules))
  }

  function judgeRow({ message, route, facts, isProbe }: PlacedRow, end: Judged): Judgement {
    const { provider } = route.provider
    const pathWait = facts.shaped === null ? 0 : shaping.waitOf(facts.shaped)
    return judge({ end, message, now: clock.now(), provider, pathWait, isProbe })
  }

  function noteTry({ facts, lane }: PlacedRow, note: TryNote): void {
    if (facts.shaped !== null) shaping.noteTry(facts.shaped, lane, note)
  }

  function giveBack(row: PlacedRow, how: Omit<GiveBack, 'refund'>, refund = row.grant): void {
    if (refund !== null) egress.noteRefund(refund.ip, refund.isp)
    recorder.giveBack(row.message, { ...how, ...(refund === null ? {} : { refund }) })
  }

  function giveBackReturned(row: PlacedRow, end: Extract<TryEnd, { kind: 'returned' }>, refund: Grant | null): void {
    if (end.why === 'source-gone' && row.ip !== null) egress.disable(row.ip.address, end.reason, row.ip.source)
    if (end.why === 'not-renderable') {
      const { id, domain } = row.message
      logger.error({ message_id: id, domain, reason: end.reason }, 'message cannot be rendered')
    }
    const nextAt = dueAfter(row, end, clock.now())
    giveBack(row, end.why === 'no-socket' ? { nextAt, waitingFor: 'sockets' } : { nextAt }, refund)
  }

  return {
    settle(row: PlacedRow, result: TryResult): void {
      const { end, facts, startedAt: at, durationMilliseconds, transcript, wasRcptSent } = result
      const refund = wasRcptSent ? null : row.grant
      if (end.kind === 'returned') {
        noteTry(row, end.why === 'no-socket' ? { kind: 'no-socket', reason: end.reason } : { kind: 'neither' })
        // Of its message rate it has used nothing.
        if (row.facts.shaped !== null && !wasRcptSent) shaping.giveBack(row.facts.shaped, 1)
        return giveBackReturned(row, end, refund)
      }
      const judgement = judgeRow(row, end)
      noteTry(row, noteOf(end, judgement))
      const wantsTls = judgement.category === 'tls' && facts.tls === null
      if (wantsTls && row.ip !== null && facts.host !== null) tlsMemory.forget(row.ip.address, facts.host)
      const operator = row.route.provider
      const tried = { facts, at, durationMilliseconds, ip: row.ip?.address ?? null, operator, transcript, refund }
      record(row.message, tried, judgement)
    },
    settleDns(answer: NoHosts, message: ClaimedMessage): void {
      const at = clock.now()
      const jitter = configuration.current().server.delivery.retry_jitter
      const nothing = { facts: NO_CONNECTION, durationMilliseconds: 0, transcript: null, refund: null }
      record(message, { ...nothing, at, ip: null, operator: null }, judgeDns(answer, message, at, jitter))
    },
    giveBack,
    /** Nobody knows how far its try came. */
    giveBackUnheard(row: PlacedRow, isMarked: boolean): void {
      noteTry(row, { kind: 'neither' })
      const now = clock.now()
      const wait = configuration.current().server.delivery.uncertain_retry
      // Whether RCPT was sent is not known: the allowance stays spent.
      recorder.giveBack(row.message, isMarked ? { nextAt: now + wait, isPossibleDuplicate: true } : { nextAt: now })
    },
  }
}

/** When a row is due that came back without a result. */
function dueAfter({ message, ip }: PlacedRow, { why }: Extract<TryEnd, { kind: 'returned' }>, now: number): number {
  switch (why) {
    case 'stopping':
    case 'unmarked':
    // Somebody else has it, or it waits: then nothing comes of this.
    case 'stale':
      return now
    case 'source-gone':
      return ip === null ? now + LOOK_AGAIN_AFTER : now
    case 'no-socket':
      return now + SOCKET_WAIT
    case 'not-renderable':
      return now + LOOK_AGAIN_AFTER
    case 'store-away':
      return now + READ_AGAIN_AFTER
    case 'too-late':
      // Due at once if our clock was wrong and is set right again; never a claim that comes back again and again.
      return now < message.expiresAt ? message.expiresAt : message.acceptedAt
    default:
      return unreachable(why)
  }
}

/** What a row that came back says of its path. Failed connections speak for themselves. */
function noteOf(end: Judged, { category }: Judgement): TryNote {
  if (end.kind === 'accepted') return { kind: 'delivered' }
  if (end.kind !== 'refused' || category === null) return { kind: 'neither' }
  return { kind: 'refused', reply: end.reply, stage: end.stage, category }
}
