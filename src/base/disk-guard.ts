/**
 * Two marks on the free space of the disk that holds the database (hardening.md 6.2): below the upper one nothing new
 * is accepted, below the lower one no new delivery starts, because its outcome could not be recorded.
 *
 * The space is looked at every second, so it recovers by itself. A disk that can not be asked counts as full: a store
 * on it would not answer either. Never throws.
 */
import { statfs } from 'node:fs/promises'
import { SECOND } from './clock.ts'
import type { Clock } from './clock.ts'
import { errorText } from './errors.ts'
import type { Logger } from './logger.ts'

export interface DiskGuard {
  /** Looks for the first time. */
  start(): Promise<void>
  mayAccept(): boolean
  mayDeliver(): boolean
  /** Bytes that are free for us, as last seen. */
  freeBytes(): number
  stop(): void
}

export interface DiskGuardOptions {
  /** On the disk that is looked at. */
  folder: string
  minFreeAccept: number
  minFreeDeliver: number
  /** Of real time. */
  clock: Clock
  logger: Logger
  /** Deliveries may start again. */
  onDeliver: () => void
}

const LOOK_EVERY = SECOND

export function createDiskGuard(options: DiskGuardOptions): DiskGuard {
  const { folder, minFreeAccept, minFreeDeliver, clock, logger, onDeliver } = options
  let freeBytes = Infinity
  let isStopped = false
  let cancel = (): void => {}

  const mayAccept = (): boolean => freeBytes >= minFreeAccept
  const mayDeliver = (): boolean => freeBytes >= minFreeDeliver

  async function look(): Promise<void> {
    const before = { accepts: mayAccept(), delivers: mayDeliver() }
    try {
      const { bavail, bsize } = await statfs(folder)
      freeBytes = bavail * bsize
    } catch (thrown) {
      if (freeBytes > 0) logger.error({ folder, error: errorText(thrown) }, 'the free space is not known')
      freeBytes = 0
    }
    tell('accepting new mail', before.accepts, mayAccept(), minFreeAccept)
    tell('starting deliveries', before.delivers, mayDeliver(), minFreeDeliver)
    if (!before.delivers && mayDeliver()) onDeliver()
    if (!isStopped) cancel = clock.after(LOOK_EVERY, () => void look())
  }

  function tell(what: string, before: boolean, now: boolean, mark: number): void {
    if (before === now) return
    const facts = { folder, free_bytes: freeBytes, mark_bytes: mark }
    if (now) logger.info(facts, `${what} again: there is space on the disk`)
    else logger.error(facts, `${what} stopped: the disk is nearly full`)
  }

  return {
    start: look,
    mayAccept,
    mayDeliver,
    freeBytes: () => freeBytes,
    stop() {
      isStopped = true
      cancel()
    },
  }
}
