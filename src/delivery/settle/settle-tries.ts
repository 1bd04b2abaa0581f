/**
 * Keeps the rows that are in threads. Each leaves once: with a result, or given back when its thread died, lost it, or
 * was given up (`settle-row.ts`).
 *
 * A second result for a claim is ignored. Never throws. delivery/README.md "Stages".
 */
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { PlacedRow } from '../place/placed-row.ts'
import { NO_CONNECTION, type TryEnd, type TryResult } from '../protocol/try-result.ts'
import type { NoHosts } from '../route/route-message.ts'
import type { ClaimHistory } from './claim-history.ts'
import type { DotMarks } from './dot-marks.ts'
import { createSettleRow, type SettleRow, type SettleRowOptions } from './settle-row.ts'

export interface SettleTries {
  /** These rows are in this thread now. */
  begin(rows: readonly PlacedRow[], thread: number): void
  settle(results: readonly TryResult[]): void
  settleDns(answer: NoHosts, messages: readonly ClaimedMessage[]): void
  /** A row that did not go to a thread. */
  giveBack: SettleRow['giveBack']
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

interface SettleTriesOptions extends SettleRowOptions {
  marks: Pick<DotMarks, 'isMarked' | 'forget'>
  history: Pick<ClaimHistory, 'note'>
  /** These rows have left their threads: their paths may take others. */
  onLeft: (rows: readonly PlacedRow[]) => void
}

const UNANSWERED: TryEnd = { kind: 'unanswered', reason: 'the server stopped before the answer came' }

export function createSettleTries(options: SettleTriesOptions): SettleTries {
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
    begin(rows, thread) {
      for (const row of rows) inThread.set(row.claim, { row, thread })
    },
    settle(results) {
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
    settleDns(answer, messages) {
      for (const message of messages) settleRow.settleDns(answer, message)
    },
    giveBack: settleRow.giveBack,
    giveBackThread(thread) {
      const rows = [...inThread.values()].filter((entry) => entry.thread === thread).map(({ row }) => row)
      const uncertain = giveBackUnheard(rows)
      metrics.leasesRecovered.inc(rows.length)
      logger.warn({ thread, messages: rows.length, uncertain }, 'messages taken back from a delivery thread')
      onLeft(rows)
    },
    giveBackLost(claims) {
      const rows = claims.flatMap((claim) => inThread.get(claim)?.row ?? [])
      giveBackUnheard(rows)
      onLeft(rows)
    },
    endUnanswered() {
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
    held: () => inThread.values(),
    keyInThread: (claim) => inThread.get(claim)?.row.message.key,
  }
}
