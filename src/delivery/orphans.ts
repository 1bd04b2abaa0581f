/**
 * The net below all: rows in nobody's hand. Each minute it compares what the store has leased to this process, what the
 * ready window counts and what the threads were given with what is truly held (`holders.ts`), and frees what got lost.
 *
 * | found                                               | then                                                    |
 * | --------------------------------------------------- | ------------------------------------------------------- |
 * | leased in the store, held by nobody                 | given back by its claim; one with the dot mark is due   |
 * |                                                     | later, as a possible duplicate                          |
 * | counted by the window, held by nobody               | not counted any more                                    |
 * | given to a thread, which does not have it           | given back as if the thread had died with it            |
 *
 * Nothing of this should ever happen: each is an error of this program, is logged with all that is known of the row,
 * and counted in `sternpost_orphans_total`.
 *
 * Why a row that two looks find is no false alarm: answers of the store arrive in the order of their commits. The first
 * look waits a turn of the event loop behind its answer, so each claim that it saw has been heard, with all that
 * follows from that. When nobody holds the claim then, nobody ever will, or its end was heard; an end that was heard
 * was committed, so the second look, which reads later, does not find the claim any more. And if that were wrong: its
 * holder has an older claim than whoever gets the row next, and the store refuses its mark and its outcome. An error of
 * the store is logged; the next minute looks again.
 */
import { SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { LeasedPosition, LeasedRow, RowClaim } from '../store/records/records.ts'
import type { Store } from '../store/store.ts'
import type { ClaimHistory } from './settle/claim-history.ts'
import type { DeliveryThreads } from './delivery-threads.ts'
import type { Holders } from './holders.ts'
import type { ReadyWindow } from './place/ready-window.ts'
import type { SettleTries } from './settle/settle-tries.ts'

export interface Orphans {
  /** Looks once, unless it does so already. Never rejects. */
  look(): Promise<void>
  stop(): void
}

export interface OrphansOptions {
  store: Pick<Store, 'leasedRows' | 'unclaim'>
  clock: Clock
  /** Of the pause between two looks. */
  realClock: Clock
  logger: Logger
  metrics: Pick<Metrics, 'orphans'>
  epoch: number
  holders: Holders
  window: Pick<ReadyWindow, 'held' | 'release'>
  tries: Pick<SettleTries, 'held' | 'giveBackLost'>
  history: ClaimHistory
  /** Undefined: there are none yet. */
  threads: () => Pick<DeliveryThreads, 'claimsOf'> | undefined
  threadCount: number
  /** Of a row whose final dot may have gone out. */
  uncertainRetry: () => number
  /** Rows are due of which the queue's directory does not know. */
  onFreed: () => void
}

type Lost = RowClaim & { id: string; since?: number; isMarked?: boolean }

/** Rows of one read or of one return: a few milliseconds of the store. */
const MOST_AT_ONCE = 500
const BETWEEN_LOOKS = SECOND

export function createOrphans(options: OrphansOptions): Orphans {
  const { store, clock, realClock, logger, metrics, epoch, holders, window, tries } = options
  let looking: Promise<unknown> | undefined
  /** A thread that does not answer holds up nothing but its own next question. */
  const asked = new Set<number>()
  let isStopped = false

  /** What the store has leased, and nobody holds. */
  async function unheldRows(): Promise<Map<number, LeasedRow>> {
    const unheld = new Map<number, LeasedRow>()
    let after: LeasedPosition | null = null
    do {
      const { rows, next } = await store.leasedRows(epoch, after, MOST_AT_ONCE)
      await new Promise<void>((resolve) => void setImmediate(resolve))
      const held = holders()
      for (const row of rows) if (!held.has(row.claim)) unheld.set(row.claim, row)
      after = next
    } while (after !== null)
    return unheld
  }

  function countedByNobody(): Map<number, Lost> {
    const held = holders()
    return new Map(
      [...window.held()].flatMap((message) => (held.has(message.claim) ? [] : [[message.claim, message] as const])),
    )
  }

  async function compare(): Promise<void> {
    const first = await unheldRows()
    const counted = countedByNobody()
    if (first.size + counted.size === 0) return
    await new Promise<void>((resolve) => void realClock.after(BETWEEN_LOOKS, resolve))
    if (isStopped) return
    const leased = [...(await unheldRows()).values()].filter(({ claim }) => first.has(claim))
    if (isStopped) return
    for (let index = 0; index < leased.length; index += MOST_AT_ONCE) {
      await giveBack(leased.slice(index, index + MOST_AT_ONCE))
      options.onFreed()
    }
    const onlyCounted = [...countedByNobody().values()].filter(({ claim }) => counted.has(claim))
    window.release(onlyCounted.map(({ claim }) => claim))
    for (const row of onlyCounted) tell(row, 'window')
    if (onlyCounted.length > 0) options.onFreed()
  }

  async function giveBack(rows: readonly LeasedRow[]): Promise<void> {
    const now = clock.now()
    await store.unclaim({
      epoch,
      rows: rows.map(({ key, claim, isMarked }) =>
        isMarked
          ? { key, claim, nextAt: now + options.uncertainRetry(), isPossibleDuplicate: true }
          : { key, claim, nextAt: now },
      ),
    })
    window.release(rows.map(({ claim }) => claim))
    for (const row of rows) tell(row, 'store')
  }

  async function claimsOf(
    threads: Pick<DeliveryThreads, 'claimsOf'>,
    thread: number,
  ): Promise<ReadonlySet<number> | null> {
    asked.add(thread)
    try {
      return await threads.claimsOf(thread)
    } finally {
      asked.delete(thread)
    }
  }

  async function askThread(thread: number): Promise<void> {
    const threads = options.threads()
    if (threads === undefined || asked.has(thread)) return
    // They were posted before the question, so the thread has heard of them before it answers.
    const given = [...tries.held()].filter((entry) => entry.thread === thread).map(({ row }) => row)
    const has = given.length === 0 ? null : await claimsOf(threads, thread)
    // Of a dead thread all rows went back.
    if (has === null || isStopped) return
    const here = new Set(Array.from(tries.held(), ({ row }) => row.claim))
    // The results before the answer have been heard: what came back is not here any more.
    const lost = given.filter(({ claim }) => here.has(claim) && !has.has(claim))
    if (lost.length === 0) return
    tries.giveBackLost(lost.map(({ claim }) => claim))
    for (const { message } of lost) tell(message, `thread ${thread}`)
  }

  function tell({ key, claim, id, since, isMarked }: Lost, seenBy: string): void {
    metrics.orphans.inc({ kind: 'message' })
    const facts = { message_id: id, claim, since: since ?? null, may_be_sent: isMarked ?? null, seen_by: seenBy }
    logger.warn({ ...facts, history: options.history.of(key) }, "message in nobody's hand")
  }

  function tellFailure(thrown: unknown): void {
    // A stop does not wait for it.
    if (!isStopped) logger.error({ error: errorText(thrown) }, "rows in nobody's hand could not be looked for")
  }

  function run(): Promise<unknown> {
    for (let thread = 0; thread < options.threadCount; thread++) void askThread(thread).catch(tellFailure)
    return compare()
      .catch(tellFailure)
      .finally(() => {
        looking = undefined
      })
  }

  return {
    async look() {
      if (!isStopped) await (looking ??= run())
    },
    stop() {
      isStopped = true
    },
  }
}
