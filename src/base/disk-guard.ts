/**
 * Marks on the free space of the disk that holds the database (store/README.md "Full disk"). Looked at every second, so
 * that it recovers by itself. A disk that cannot be asked counts as full: a store on it would not answer either. Never
 * throws.
 */
import { statfs } from 'node:fs/promises'
import { SECOND, type Clock } from './clock.ts'
import { errorText } from './errors.ts'
import type { Logger } from './logger.ts'

export type DiskGuard = ReturnType<typeof createDiskGuard>

export interface DiskGuardOptions {
  folder: string
  /** A clause; null: the files are there. Nothing is accepted or delivered without them. */
  storeProblem: () => string | null
  minFreeAccept: number
  minFreeDeliver: number
  /** Of real time. */
  clock: Clock
  logger: Logger
  onShort?: () => void
}

const LOOK_EVERY = SECOND
/** It is short below so many times the upper mark. */
const SHORT_FACTOR = 2
/** So far above a mark it counts as passed again: space at the mark comes and goes. */
const PASSED_AGAIN = 1.1

export function createDiskGuard(options: DiskGuardOptions) {
  const { folder, storeProblem, minFreeAccept, minFreeDeliver, clock, logger, onShort } = options
  let freeBytes = Infinity
  let missing: string | null = null
  let isStopped = false
  let cancel = (): void => {}
  const room = createMark(SHORT_FACTOR * minFreeAccept, clock)
  const accepting = createMark(minFreeAccept, clock)
  const delivering = createMark(minFreeDeliver, clock)

  async function look(onDeliver: () => void): Promise<void> {
    lookAtFiles(onDeliver)
    try {
      const { bavail, bsize } = await statfs(folder)
      freeBytes = bavail * bsize
    } catch (thrown) {
      if (freeBytes > 0) logger.error({ folder, error: errorText(thrown) }, 'the free space is not known')
      freeBytes = 0
    }
    const space = room.look(freeBytes)
    const facts = { folder, free_bytes: freeBytes }
    if (space === 'passed') logger.info(facts, 'the disk has room again')
    if (space === 'fallen') {
      logger.warn({ ...facts, mark_bytes: SHORT_FACTOR * minFreeAccept }, 'the disk runs low: dialogues are not kept')
      onShort?.()
    }
    tell('accepting new mail', accepting.look(freeBytes), { mark: accepting, mark_bytes: minFreeAccept })
    const change = delivering.look(freeBytes)
    tell('starting deliveries', change, { mark: delivering, mark_bytes: minFreeDeliver })
    if (change === 'passed' && missing === null) onDeliver()
    if (!isStopped) cancel = clock.after(LOOK_EVERY, () => void look(onDeliver))
  }

  function lookAtFiles(onDeliver: () => void): void {
    const before = missing
    missing = storeProblem()
    if (before === null && missing !== null) logger.fatal({ folder }, `${missing}: nothing is accepted or delivered`)
    if (before === null || missing !== null) return
    logger.warn({ folder }, 'the database is back')
    if (delivering.isPassed()) onDeliver()
  }

  function tell(what: string, change: Change, { mark, mark_bytes }: { mark: Mark; mark_bytes: number }): void {
    if (change === 'none') return
    const facts = { folder, free_bytes: freeBytes, mark_bytes }
    if (change === 'fallen') logger.error(facts, `${what} stopped: the disk is nearly full`)
    else logger.info({ ...facts, ms: mark.lasted() }, `${what} again: there is space on the disk`)
  }

  /** A clause; null: deliveries may begin. */
  function deliverProblem(): string | null {
    return missing ?? (delivering.isPassed() ? null : 'the disk is full')
  }

  return {
    /** Looks for the first time, and from then on every second; `onDeliver`: deliveries may start again. */
    start: look,
    /** A clause; null: new mail may be accepted. */
    acceptProblem: (): string | null => missing ?? (accepting.isPassed() ? null : 'the disk is nearly full'),
    mayDeliver: (): boolean => deliverProblem() === null,
    deliverProblem,
    /** Soon nothing new will be accepted: what can be left out is. */
    isShort: (): boolean => !room.isPassed(),
    /** Bytes that are free for us, as last seen. */
    freeBytes: (): number => freeBytes,
    stop(): void {
      isStopped = true
      cancel()
    },
  }
}

type Change = 'fallen' | 'passed' | 'none'

type Mark = ReturnType<typeof createMark>

function createMark(bytes: number, clock: Clock) {
  let isPassed = true
  let fallenAt = 0
  let lasted = 0
  return {
    look(freeBytes: number): Change {
      const before = isPassed
      isPassed = freeBytes >= (isPassed ? bytes : Math.min(bytes * PASSED_AGAIN, Number.MAX_SAFE_INTEGER))
      if (before === isPassed) return 'none'
      if (isPassed) lasted = clock.now() - fallenAt
      else fallenAt = clock.now()
      return isPassed ? 'passed' : 'fallen'
    },
    isPassed: (): boolean => isPassed,
    /** Milliseconds that the space was below it the last time. */
    lasted: (): number => lasted,
  }
}
