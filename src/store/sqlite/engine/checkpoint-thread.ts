/**
 * Entry of a thread that moves a large write-ahead log into the database, while the thread of the store goes on to
 * commit. It waits for nobody: what a reader holds stays for the next one. Ends by itself.
 */
import { workerData } from 'node:worker_threads'
import Sqlite from 'better-sqlite3'
import type { LogState } from './checkpoint.ts'

/** SQLite syncs the database only when nothing came meanwhile. Without that the store would do it, for all of it. */
const MOST_ROUNDS = 1_000

const { file } = workerData as { file: string }
const database = new Sqlite(file, { fileMustExist: true, timeout: 0 })
database.pragma('synchronous = full')
const move = database.prepare<[], LogState>('pragma wal_checkpoint(passive)')
const look = database.prepare<[], LogState>('pragma wal_checkpoint(noop)')
let moved = -1
for (let round = 0; round < MOST_ROUNDS; round++) {
  move.get()
  const { log, checkpointed } = look.get() ?? { log: 0, checkpointed: 0 }
  if (checkpointed >= log || checkpointed === moved) break
  moved = checkpointed
}
database.close()
