/**
 * Entry of the store thread: opens and migrates the database, then runs verbs (`serve-verbs.ts`) until it is told to
 * close.
 */
import { flushCompileCache } from 'node:module'
import { parentPort, workerData, type MessagePort } from 'node:worker_threads'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { keepTidy } from '../../base/threads/tidy-up.ts'
import { openEngine, refuseUnfinishedMove } from './open-engine.ts'
import { serveVerbs } from './serve-verbs.ts'
import type { StoreThreadData, StoreThreadMessage } from './thread-messages.ts'

async function startStoreThread(port: MessagePort, data: StoreThreadData): Promise<void> {
  const tell = (message: StoreThreadMessage): void => port.postMessage(message)
  try {
    const engine = await openEngine(data.location, data.notes)
    refuseUnfinishedMove(engine)
    const verbs = serveVerbs(engine, data.verbs, data.location)
    tell({ kind: 'opened', facts: engine.facts, warning: engine.warning ?? null, verbs })
  } catch (thrown) {
    const exitCode = thrown instanceof ProcessExit ? thrown.exitCode : EXIT.disk
    tell({ kind: 'refused', exitCode, sentence: errorText(thrown) })
  }
}

/** Some ten more than the thread has under load without any garbage. */
const MUCH_BYTES = 32 * 1024 * 1024

keepTidy(MUCH_BYTES)
if (parentPort !== null) await startStoreThread(parentPort, workerData as StoreThreadData)
// Now, not at the end of the thread, which a kill would take away: else the next start strips types anew.
flushCompileCache()
