/**
 * The net below all: rows in nobody's hand. Each minute it compares what the store has leased to this process, what the
 * ready window counts and what the threads were given with what is truly held (`holders.ts`), and frees what got lost:
 * delivery/README.md "Who holds a row". Each such row is an error of this program: it is logged with all that is known
 * of it, and counted in `sternpost_orphans_total`.
 */
import { MINUTE, SECOND } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Metrics } from '../base/metrics.ts'
import type { LeasedPosition, LeasedRow, RowClaim } from '../store/records/claim-records.ts'
import type { Store } from '../store/store.ts'
import type { DeliveryThreads } from './delivery-threads.ts'
import type { DispatcherParts } from './dispatcher-parts.ts'
import type { Holders } from './holders.ts'
import type { ReadyWindow } from './place/ready-window.ts'
import type { SettleTries } from './settle/settle-tries.ts'

export type Orphans = ReturnType<typeof createOrphans>

interface OrphansOptions extends Pick<
  DispatcherParts,
  'clock' | 'realClock' | 'logger' | 'epoch' | 'history' | 'threadCount' | 'uncertainRetry'
> {
  store: Pick<Store, 'leasedRows' | 'unclaim'>
  metrics: Pick<Metrics, 'orphans'>
  holders: Holders
  window: Pick<ReadyWindow, 'held' | 'release'>
  tries: Pick<SettleTries, 'held' | 'giveBackLost'>
  threads: Pick<DeliveryThreads, 'claimsOf'>
  /** Rows became due, and the queue's directory does not know of them. */
  onFreed: () => void
}

type Lost = RowClaim & { id: string; since?: number; isMarked?: boolean }
type Tell = (row: Lost, seenBy: string) => void

const RENEW_EVERY = MINUTE
/** Rows of one verb: a few milliseconds of the store. */
const MOST_AT_ONCE = 500
const BETWEEN_LOOKS = SECOND

export function createOrphans(options: OrphansOptions) {
  const { logger, metrics, history } = options
  let looking: Promise<void> | undefined
  let isStopped = false
  const compare = createCompare(options, tell, () => isStopped)
  const askThread = createAskThread(options, tell, () => isStopped)

  function tell({ key, claim, id, since, isMarked }: Lost, seenBy: string): void {
    metrics.orphans.inc({ kind: 'message' })
    const facts = { message_id: id, claim, since: since ?? null, may_be_sent: isMarked ?? null, seen_by: seenBy }
    logger.warn({ ...facts, history: history.of(key) }, "message in nobody's hand")
  }

  function tellFailure(thrown: unknown): void {
    // A stop does not wait for a look, and may close the store under it.
    if (!isStopped) logger.error({ error: errorText(thrown) }, "rows in nobody's hand could not be looked for")
  }

  function run(): Promise<void> {
    for (let thread = 0; thread < options.threadCount; thread++) void askThread(thread).catch(tellFailure)
    return compare()
      .catch(tellFailure)
      .finally(() => void (looking = undefined))
  }

  return {
    /** Looks once; a look that is under way is joined. Never rejects. */
    async look(): Promise<void> {
      if (!isStopped) await (looking ??= run())
    },
    stop: () => void (isStopped = true),
  }
}

/** Looks twice for rows that the store has leased, or the window counts, and nobody holds; frees what both saw. */
function createCompare(options: OrphansOptions, tell: Tell, isStopped: () => boolean): () => Promise<void> {
  const { store, clock, realClock, epoch, holders, window } = options

  async function leasedToNobody(): Promise<Map<number, LeasedRow>> {
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

  function countedForNobody(): Map<number, Lost> {
    const held = holders()
    const unheld = [...window.held()].filter(({ claim }) => !held.has(claim))
    return new Map(unheld.map((message) => [message.claim, message]))
  }

  async function giveBack(rows: readonly LeasedRow[]): Promise<void> {
    const now = clock.now()
    const later = now + options.uncertainRetry()
    const freed = rows.map(({ key, claim, isMarked }) =>
      isMarked ? { key, claim, nextAt: later, isPossibleDuplicate: true } : { key, claim, nextAt: now },
    )
    await store.unclaim({ epoch, rows: freed })
    release(rows, 'store')
  }

  function release(rows: readonly Lost[], seenBy: string): void {
    if (rows.length === 0) return
    window.release(rows.map(({ claim }) => claim))
    for (const row of rows) tell(row, seenBy)
    options.onFreed()
  }

  return async () => {
    const first = await leasedToNobody()
    const counted = countedForNobody()
    if (first.size + counted.size === 0) return
    await new Promise<void>((resolve) => void realClock.after(BETWEEN_LOOKS, resolve))
    if (isStopped()) return
    const leased = [...(await leasedToNobody()).values()].filter(({ claim }) => first.has(claim))
    if (isStopped()) return
    for (let index = 0; index < leased.length; index += MOST_AT_ONCE) {
      await giveBack(leased.slice(index, index + MOST_AT_ONCE))
    }
    const stillCounted = [...countedForNobody().values()].filter(({ claim }) => counted.has(claim))
    release(stillCounted, 'window')
  }
}

/** Asks a thread for what it has; rows that it was given and does not have go back as if it had died with them. */
function createAskThread({ tries, threads }: OrphansOptions, tell: Tell, isStopped: () => boolean) {
  /** A thread that does not answer holds up nothing but its own next question. */
  const asked = new Set<number>()

  async function claimsOf(thread: number): Promise<ReadonlySet<number> | null> {
    asked.add(thread)
    try {
      return await threads.claimsOf(thread)
    } finally {
      asked.delete(thread)
    }
  }

  return async (thread: number): Promise<void> => {
    if (asked.has(thread)) return
    // They were posted before the question, so the thread has heard of them before it answers.
    const given = [...tries.held()].filter((entry) => entry.thread === thread).map(({ row }) => row)
    const has = given.length === 0 ? null : await claimsOf(thread)
    // Of a dead thread all rows went back.
    if (has === null || isStopped()) return
    const here = new Set(Array.from(tries.held(), ({ row }) => row.claim))
    // The results before the answer have been heard: what came back is not here any more.
    const lost = given.filter(({ claim }) => here.has(claim) && !has.has(claim))
    if (lost.length === 0) return
    tries.giveBackLost(lost.map(({ claim }) => claim))
    for (const { message } of lost) tell(message, `thread ${thread}`)
  }
}

export type LeaseRenewal = ReturnType<typeof createLeaseRenewal>

type LeaseRenewalOptions = DispatcherParts & { holders: Holders; orphans: Orphans }

/**
 * Each minute, and before lapsed leases are freed (behind a clock that was set ahead all have lapsed): renews the leases
 * of the rows that memory truly holds. Each minute also looks for rows in nobody's hand. A row that nobody holds is not
 * renewed: if the look does not find it either, its lease lapses and the store frees it. An error of the store is
 * logged; a lease lasts for many renewals. store/README.md "Leases and claims".
 */
export function createLeaseRenewal(options: LeaseRenewalOptions) {
  const { store, realClock, logger, lease, holders, orphans } = options
  let cancel = (): void => {}
  let isStopped = false

  async function renew(): Promise<void> {
    const rows = Array.from(holders().values(), ({ message: { key, claim } }) => ({ key, claim }))
    for (let first = 0; first < rows.length && !isStopped; first += MOST_AT_ONCE) {
      const { epoch, leaseUntil } = lease()
      await store.renewLeases(epoch, rows.slice(first, first + MOST_AT_ONCE), leaseUntil)
    }
  }

  function wait(): void {
    cancel = realClock.after(RENEW_EVERY, () => {
      void orphans.look()
      renew().catch(tellFailure)
      wait()
    })
  }

  function tellFailure(thrown: unknown): void {
    if (!isStopped) logger.error({ error: errorText(thrown) }, 'leases could not be renewed')
  }

  return {
    start: wait,
    renew,
    stop(): void {
      isStopped = true
      cancel()
    },
  }
}
