/**
 * Loaded into a server by thread-turns.ts: from the time on at which the folder WATCH_FOLDER has a file `begin`, each of
 * its threads writes the longest time of processor that it spent between two turns of a timer, in milliseconds, into
 * that folder. Time of processor, so that a busy machine makes no thread look busy.
 */
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isMainThread, threadId, threadName } from 'node:worker_threads'

const EVERY = 20
const folder = process.env['WATCH_FOLDER'] ?? ''
const file = join(folder, `${process.pid}-${threadId}`)
const name = isMainThread ? 'main' : threadName
let before = spent()
let longest = 0
/** What is loaded at the start counts for nothing. */
let isBegun = false

setInterval(() => {
  const now = spent()
  const took = now - before
  before = now
  if (!isBegun) {
    isBegun = existsSync(join(folder, 'begin'))
    return
  }
  if (took <= longest) return
  longest = took
  writeFileSync(file, `${name} ${longest.toFixed(0)}`)
}, EVERY).unref()

/** Milliseconds of processor of this thread. */
function spent(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1_000
}
