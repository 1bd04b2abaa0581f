/**
 * Moves committed pages from the write-ahead log into the database, between two groups of verbs, and waits for nobody.
 * To ask for the size of the log costs as much as a small verb, so it is asked after some groups, or after a large one.
 * A disk that takes no more is no reason to end: the next group tries again. What would take long, as after a backup that
 * held the log for minutes, a thread of its own moves. Throws for a damaged file only.
 */
import { Worker } from 'node:worker_threads'
import { SECOND } from '../../../base/clock.ts'
import type { Database } from 'better-sqlite3'
import { isDamage } from './database.ts'

/**
 * Small enough to be a short pause, for every acceptance of that moment waits for it: with 16 MiB (store/README.md
 * "Verbs and transactions") it took four times as long, and the verbs together no less. With 1 MiB, pages that change
 * often are written too often.
 */
const CHECKPOINT_ABOVE_BYTES = 4 * 1_024 * 1_024
/** Of this much the pages take the store a tenth of a second and more. */
const MOVED_ELSEWHERE_ABOVE_BYTES = 16 * 1_024 * 1_024
/** While a reader holds the log, a thread moves nothing. */
const BETWEEN_THREADS = 10 * SECOND
/** So many groups, or bytes of arguments, and the log is looked at. */
const GROUPS_BETWEEN_LOOKS = 16
const BYTES_BETWEEN_LOOKS = 1_024 * 1_024

/** A row of `pragma wal_checkpoint`: pages in the log, and how many of them the database has already. */
export interface LogState {
  busy: number
  log: number
  checkpointed: number
}

/** Returns what is called after a group or two, with the bytes of their arguments; left out: it looks at once. */
export function createCheckpoint(database: Database, walMaxBytes: number): (bytes?: number) => void {
  const pageBytes = Number(database.pragma('page_size', { simple: true }))
  const look = database.prepare<[], LogState>('pragma wal_checkpoint(noop)')
  const move = database.prepare<[], LogState>('pragma wal_checkpoint(passive)')
  const cut = database.prepare<[], LogState>('pragma wal_checkpoint(truncate)')
  const moveElsewhere = createCheckpointThread(database.name)
  const patience = Number(database.pragma('busy_timeout', { simple: true }))
  const run = (): void => {
    const state = look.get()
    if (state === undefined) return
    const left = (state.log - state.checkpointed) * pageBytes
    if (left > MOVED_ELSEWHERE_ABOVE_BYTES && moveElsewhere()) return
    if (left > CHECKPOINT_ABOVE_BYTES) move.get()
    if (state.log * pageBytes <= walMaxBytes) return
    database.pragma('busy_timeout = 0')
    try {
      cut.get()
    } finally {
      database.pragma(`busy_timeout = ${patience}`)
    }
  }
  let groups = 0
  let bytes = 0
  return (ofGroup = BYTES_BETWEEN_LOOKS) => {
    groups += 1
    bytes += ofGroup
    if (groups < GROUPS_BETWEEN_LOOKS && bytes < BYTES_BETWEEN_LOOKS) return
    groups = 0
    bytes = 0
    try {
      run()
    } catch (thrown) {
      if (isDamage(thrown)) throw thrown
    }
  }
}

/** Returns what starts such a thread, unless one is at work or was just now; false: threads fail, so nobody does it. */
function createCheckpointThread(file: string): () => boolean {
  let isAtWork = false
  let nextAt = 0
  let hasFailed = false
  return () => {
    if (hasFailed || isAtWork || performance.now() < nextAt) return !hasFailed
    isAtWork = true
    const entry = new URL('checkpoint-thread.ts', import.meta.url)
    const worker = new Worker(entry, { workerData: { file }, name: 'checkpoint', execArgv: [] })
    // The end of the process does not wait for it.
    worker.unref()
    worker.once('error', () => void (hasFailed = true))
    worker.once('exit', () => {
      isAtWork = false
      nextAt = performance.now() + BETWEEN_THREADS
    })
    return true
  }
}
