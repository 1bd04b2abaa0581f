/**
 * SQLite's quick_check of the database file while the server runs, in a thread of its own. Never rejects: a file that
 * cannot be opened is what is wrong with it. A file that would take long is not looked at, since a reader keeps the
 * write-ahead log from being emptied; one that does take long is not waited for.
 */
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { Worker } from 'node:worker_threads'
import { SECOND } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'

export interface QuickCheck {
  /** null: nothing is wrong. */
  problem: string | null
  isUnfinished: boolean
}

/** Some seconds of reading on a slow disk. */
const MOST_BYTES = 512 * 2 ** 20
const MOST_MILLISECONDS = 10 * SECOND

export async function quickCheck(folder: string): Promise<QuickCheck> {
  const file = join(folder, 'sternpost.db')
  try {
    if (statSync(file).size > MOST_BYTES) return { problem: null, isUnfinished: true }
    return await askThread(file)
  } catch (thrown) {
    return { problem: errorText(thrown), isUnfinished: false }
  }
}

function askThread(file: string): Promise<QuickCheck> {
  const entry = new URL('../sqlite/backup/quick-check-thread.ts', import.meta.url)
  const worker = new Worker(entry, { workerData: { file }, name: 'quick-check', execArgv: [] })
  // The end of the process does not wait for it.
  worker.unref()
  return new Promise<QuickCheck>((resolve, reject) => {
    const timer = setTimeout(() => resolve({ problem: null, isUnfinished: true }), MOST_MILLISECONDS)
    worker.once('message', (problem: string | null) => resolve({ problem, isUnfinished: false }))
    worker.once('error', reject)
    worker.once('exit', () => {
      clearTimeout(timer)
      reject(new Error('the quick check ended without an answer'))
    })
  })
}
