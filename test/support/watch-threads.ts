/**
 * Loaded into a server (NODE_OPTIONS=--import=…): each of its threads writes the longest time of processor that it spent
 * between two turns of a timer, in milliseconds, into the folder WATCH_FOLDER. Time of processor, so that a busy machine
 * makes no thread look busy.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { isMainThread, threadId, threadName } from 'node:worker_threads'

const EVERY = 20
const folder = process.env['WATCH_FOLDER'] ?? ''
const file = join(folder, `${process.pid}-${threadId}`)
const name = isMainThread ? 'main' : threadName
let before = spent()
let longest = 0
/** What is loaded at the start counts for nothing. */
const from = performance.now() + 3_000

setInterval(() => {
  const now = spent()
  const took = now - before
  before = now
  if (performance.now() < from || took <= longest) return
  longest = took
  writeFileSync(file, `${name} ${longest.toFixed(0)}`)
}, EVERY).unref()

/** Milliseconds of processor of this thread. */
function spent(): number {
  const { user, system } = process.threadCpuUsage()
  return (user + system) / 1_000
}
