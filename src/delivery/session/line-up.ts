/**
 * The messages of one connection in their order: those that wait, the one whose reply comes next, and the one behind
 * its dot.
 *
 * A message begins when nothing is under way; behind a final dot only where both it and the host may pipeline. One that
 * the host cannot take ends without a command. Never throws.
 */
import type { SmtpExtensions } from './smtp-extensions.ts'
import type { SmtpWire } from './smtp-wire.ts'
import {
  newTransaction,
  tellEnd,
  unacceptable,
  type SendEnd,
  type SessionJob,
  type Transaction,
} from './transaction-end.ts'

interface LineUp {
  add(job: SessionJob): void
  /** Begins the next message, if one may go now. */
  next(): Transaction | undefined
  /** The one whose reply comes next. */
  first(): Transaction | undefined
  has(transaction: Transaction): boolean
  remove(transaction: Transaction): void
  /** Everything leaves: the connection has ended. */
  takeAll(): { transactions: Transaction[]; jobs: SessionJob[] }
  /** Nothing begins any more; all goes back but a message that waits for the reply to its dot. True: there is none. */
  stop(reason: string): boolean
  /** null: it is not stopped. */
  stopReason(): string | null
}

export function createLineUp(wire: Pick<SmtpWire, 'isOpen'>, extensions: SmtpExtensions): LineUp {
  const jobs: SessionJob[] = []
  let active: Transaction[] = []
  let begun = 0
  let stopReason: string | null = null
  let isBeginning = false

  const isPipelined = ({ mayPipeline }: SessionJob): boolean => mayPipeline && extensions.isPipelining

  function mayBegin(): boolean {
    const [first] = active
    if (!wire.isOpen() || stopReason !== null || active.length > 1) return false
    return first === undefined || (first.phase === 'dot' && jobs[0] !== undefined && isPipelined(jobs[0]))
  }

  function takeNext(): Transaction | undefined {
    while (mayBegin()) {
      const job = jobs.shift()
      if (job === undefined) break
      const problem = job.begin(begun) ?? unacceptable(job, extensions)
      const place = { isReused: begun > 0, isPipelined: isPipelined(job), behind: active[0] ?? null }
      if (problem === null) return newTransaction(job, place)
      job.onEnd(problem, false)
    }
    return undefined
  }

  return {
    add: (job) => void jobs.push(job),
    next() {
      // A job that ends at once may bring another one.
      if (isBeginning) return undefined
      isBeginning = true
      const next = takeNext()
      isBeginning = false
      if (next === undefined) return undefined
      active.push(next)
      begun++
      return next
    },
    first: () => active[0],
    has: (transaction) => active.includes(transaction),
    remove(transaction) {
      active = active.filter((one) => one !== transaction)
    },
    takeAll() {
      const transactions = active
      active = []
      return { transactions, jobs: jobs.splice(0) }
    },
    stop(reason) {
      stopReason = reason
      const end: SendEnd = { kind: 'returned', why: 'stopping', reason }
      const isWaiting = active[0]?.phase === 'dot'
      const ended = active.splice(isWaiting ? 1 : 0)
      const unsent = jobs.splice(0)
      for (const transaction of ended) tellEnd(transaction, end)
      for (const job of unsent) job.onEnd(end, false)
      return !isWaiting
    },
    stopReason: () => stopReason,
  }
}
