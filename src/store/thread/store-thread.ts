/**
 * Entry of the store thread: opens and migrates the database, then runs verbs (`serve-verbs.ts`) until it is told to
 * close.
 */
import { flushCompileCache } from 'node:module'
import { parentPort, workerData, type MessagePort } from 'node:worker_threads'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import type { OpenEngine } from '../engine/open-engine.ts'
import { openSqliteEngine } from '../sqlite/sqlite-engine.ts'
import type { StoreLocation } from '../store-location.ts'
import { serveVerbs } from './serve-verbs.ts'
import type { StoreThreadData, StoreThreadMessage } from './thread-messages.ts'

async function startStoreThread(port: MessagePort, data: StoreThreadData): Promise<void> {
  const tell = (message: StoreThreadMessage): void => port.postMessage(message)
  try {
    const engine = await openEngine(data.location)
    const verbs = serveVerbs(engine, data.verbs, data.location)
    tell({ kind: 'opened', facts: engine.facts, verbs })
  } catch (thrown) {
    const exitCode = thrown instanceof ProcessExit ? thrown.exitCode : EXIT.disk
    tell({ kind: 'refused', exitCode, sentence: errorText(thrown) })
  }
}

/** The driver of PostgreSQL is loaded where it is needed. */
async function openEngine(location: StoreLocation): Promise<OpenEngine> {
  if (location.engine === 'sqlite') return openSqliteEngine(location)
  const { openPostgresEngine } = await import('../postgresql/postgres-engine.ts')
  return openPostgresEngine(location)
}

if (parentPort !== null) await startStoreThread(parentPort, workerData as StoreThreadData)
// Now, not at the end of the thread, which a kill would take away: else the next start strips types anew.
flushCompileCache()
