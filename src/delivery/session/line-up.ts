/**
 * The messages of one connection in their order: those that wait, the one whose reply comes next, and the one behind
 * its dot; what is in a flight has left it. A message begins when nothing is under way; behind a final dot only where
 * both it and the host may pipeline, and no flight is better for it. One that the host cannot take ends without a
 * command. delivery/README.md "Flights".
 */
import type { Flight } from './flight.ts'
import type { FlightPermit } from './flight-permit.ts'
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

interface LineUpOptions {
  wire: Pick<SmtpWire, 'isOpen'>
  extensions: SmtpExtensions
  permit: FlightPermit
  isFlightEmpty: () => boolean
}

export type LineUp = ReturnType<typeof createLineUp>

export function createLineUp({ wire, extensions, permit, isFlightEmpty }: LineUpOptions) {
  const waiting = createWaitingJobs(extensions)
  const { jobs, isPipelined } = waiting
  let active: Transaction[] = []
  let stopReason: string | null = null

  function mayBegin(): boolean {
    const [first] = active
    const [job] = jobs
    if (!wire.isOpen() || stopReason !== null || active.length > 1 || !isFlightEmpty()) return false
    if (first === undefined || job === undefined) return true
    // One that flies when the message before it was taken would lose by its careful envelope.
    return first.phase === 'dot' && isPipelined(job) && !permit.isFor(job)
  }

  return {
    add: (job: SessionJob) => void jobs.push(job),
    begun: waiting.begun,
    /** Begins the next message, if one may go now. */
    next(): Transaction | undefined {
      const job = waiting.take(mayBegin)
      if (job === undefined) return undefined
      const place = { isReused: waiting.begun() > 1, isPipelined: isPipelined(job), behind: active[0] ?? null }
      const next = newTransaction(job, place)
      active.push(next)
      return next
    },
    /** Begins the next message in the flight, if it is one for it and there is room. */
    nextOfFlight(flight: Pick<Flight, 'hasRoom'>): SessionJob | undefined {
      return waiting.take(() => {
        const [job] = jobs
        if (job === undefined || !wire.isOpen() || stopReason !== null || active.length > 0) return false
        return permit.isFor(job) && permit.isOpen(isFlightEmpty()) && flight.hasRoom(job)
      })
    },
    /** One that is under way here or waits can be in no flight. */
    hasUnfit: () => active.some(({ job }) => !permit.isFor(job)) || jobs.some((job) => !permit.isFor(job)),
    /** The one whose reply comes next. */
    first: () => active[0],
    has: (transaction: Transaction) => active.includes(transaction),
    remove(transaction: Transaction): void {
      active = active.filter((one) => one !== transaction)
    },
    /** Everything leaves: the connection has ended. */
    takeAll(): { transactions: Transaction[]; jobs: SessionJob[] } {
      const transactions = active
      active = []
      return { transactions, jobs: jobs.splice(0) }
    },
    /** Nothing begins any more; all goes back but a message that waits for the reply to its dot. True: there is none. */
    stop(reason: string): boolean {
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

/** Those that have not begun. */
function createWaitingJobs(extensions: SmtpExtensions) {
  const jobs: SessionJob[] = []
  let begun = 0
  let isBeginning = false
  return {
    jobs,
    begun: () => begun,
    isPipelined: ({ mayPipeline }: SessionJob): boolean => mayPipeline && extensions.isPipelining,
    /** The first that may begin, while `mayGo` says so. */
    take(mayGo: () => boolean): SessionJob | undefined {
      // A job that ends at once may bring another one.
      if (isBeginning) return undefined
      isBeginning = true
      let taken: SessionJob | undefined
      while (taken === undefined && mayGo()) {
        const job = jobs.shift()
        if (job === undefined) break
        const problem = job.begin(begun) ?? unacceptable(job, extensions)
        if (problem === null) taken = job
        else job.onEnd(problem, false)
      }
      isBeginning = false
      if (taken !== undefined) begun++
      return taken
    },
  }
}
