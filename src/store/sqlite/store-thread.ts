/**
 * Entry of the store thread: opens and migrates the database, then runs verbs (`serve-verbs.ts`) until it is told to
 * close.
 */
import { flushCompileCache } from 'node:module'
import { parentPort, workerData, type MessagePort } from 'node:worker_threads'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import { openDatabase, readDurability } from './engine/database.ts'
import { schemaVersion } from './engine/migrate.ts'
import { serveVerbs } from './serve-verbs.ts'
import type { StoreThreadData, StoreThreadMessage } from './thread-messages.ts'

function startStoreThread(port: MessagePort, data: StoreThreadData): void {
  const tell = (message: StoreThreadMessage): void => port.postMessage(message)
  try {
    const database = openDatabase(data.location)
    const verbs = serveVerbs(database, data.verbs, data.location)
    const { writer } = database
    tell({ kind: 'opened', durability: readDurability(writer), schemaVersion: schemaVersion(writer), verbs })
  } catch (thrown) {
    const exitCode = thrown instanceof ProcessExit ? thrown.exitCode : EXIT.disk
    tell({ kind: 'refused', exitCode, sentence: errorText(thrown) })
  }
}

if (parentPort !== null) startStoreThread(parentPort, workerData as StoreThreadData)
// Now, not at the end of the thread, which a kill would take away: else the next start strips types anew.
flushCompileCache()
