/** Entry of the thread of a quick check: posts what SQLite says, null for nothing, and ends. */
import { parentPort, workerData } from 'node:worker_threads'
import Database from 'better-sqlite3'

const { file } = workerData as { file: string }
const database = new Database(file, { readonly: true, fileMustExist: true })
const [first] = database.pragma('quick_check(1)') as { quick_check: string }[]
database.close()
parentPort?.postMessage(first === undefined || first.quick_check === 'ok' ? null : first.quick_check)
