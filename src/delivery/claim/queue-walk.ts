/**
 * Walks over the queue keys of the store, page by page, so that no other verb waits for long: at the start, then as a
 * net below the wake-ups (delivery/README.md "Wake-ups"). An error is logged; the next walk comes as if nothing had
 * happened.
 */
import { SECOND } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import { isSaidByStore } from '../../store/passing-failure.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import type { ClaimParts } from './claim-round.ts'

type QueueWalkOptions = ClaimParts & { onPage: () => void; onWalked: () => void }

/** delivery/README.md "Wake-ups". */
const WALK_EVERY = 30 * SECOND
/** What other nodes bring is found so. */
const WALK_AMONG_OTHERS = 5 * SECOND
/** Between two walks, however many keys were forgotten. */
const SHORTEST_PAUSE = SECOND
/** Rows that are counted for one page: some milliseconds of the store's time. */
const ROWS_PER_PAGE = 10_000
const MOST_LOGGED = 5

export function createQueueWalk(options: QueueWalkOptions) {
  const { store, clock, logger, directory, hasOthers } = options
  let running: Promise<void> | undefined
  let isAskedAgain = false
  let isStopped = false
  /** When the last walk ended, which saw what they had brought by then. */
  let hadOthers = false
  let endedAt = 0
  let cancelTimer = (): void => {}
  const logFailure = (thrown: unknown): void => logWalkFailure(options, thrown)

  /** `isNet`: all keys should be known, so that an unknown one is worth a line in the log. */
  async function walk(isNet: boolean): Promise<void> {
    // Keys that were forgotten on purpose, or that others brought, are no surprise.
    const isSurprising = isNet && !directory.hasForgotten() && !hasOthers() && !hadOthers
    directory.beginWalk()
    let after: QueueKey | null = null
    do {
      const page = await store.queueKeys(after, ROWS_PER_PAGE)
      const missed = directory.learn(page.keys, ROWS_PER_PAGE)
      if (isSurprising && missed.length > 0) {
        logger.error({ count: missed.length, keys: missed.slice(0, MOST_LOGGED) }, 'scheduler.missed_wake')
      }
      options.onPage()
      after = page.next
    } while (after !== null && !isStopped)
    if (after !== null) return
    directory.endWalk()
    hadOthers = hasOthers()
    options.onWalked()
  }

  function begin(isNet: boolean): Promise<void> {
    cancelTimer()
    running = walk(isNet).finally(() => {
      running = undefined
      endedAt = clock.now()
      if (isStopped) return
      if (isAskedAgain) walkSoon()
      else setTimer()
    })
    return running
  }

  function setTimer(): void {
    const wanted = Math.max(directory.walkAt() ?? Infinity, endedAt + SHORTEST_PAUSE)
    const every = hasOthers() ? WALK_AMONG_OTHERS : WALK_EVERY
    const delay = Math.max(0, Math.min(wanted, endedAt + every) - clock.now())
    cancelTimer()
    cancelTimer = clock.after(Math.min(delay, every), () => void begin(true).catch(logFailure))
  }

  /** Rows came that nobody named. */
  function walkSoon(): void {
    isAskedAgain = running !== undefined
    if (running === undefined && !isStopped) void begin(false).catch(logFailure)
  }

  return {
    /** Walks, and goes on walking every 30 s; rejects when the first walk fails. */
    start: () => begin(false),
    walkSoon,
    /** There may be room for keys that were forgotten: the next walk comes as soon as they are due. */
    look(): void {
      if (running === undefined && !isStopped && directory.walkAt() !== null) setTimer()
    },
    /** Others have written: what they bring is found at their pace, also where none was there at the last walk. */
    othersWrote(): void {
      if (endedAt > 0 && running === undefined && !isStopped) setTimer()
    },
    async stop(): Promise<void> {
      isStopped = true
      cancelTimer()
      await running?.catch(() => {})
    },
  }
}

function logWalkFailure({ store, logger }: Pick<ClaimParts, 'store' | 'logger'>, thrown: unknown): void {
  const level = isSaidByStore(store, thrown) ? 'debug' : 'error'
  logger[level]({ error: errorText(thrown) }, 'the queue could not be walked')
}
