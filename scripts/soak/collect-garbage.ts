/**
 * Loaded into the server of the soak: all its threads collect their garbage when the file COLLECT_FILE is written, and
 * give back the memory. What they have then is in use, or leaked; else the oldest garbage of half an hour would count,
 * and room that the runtime keeps for the next. Each thread says at once what is left, before load makes new garbage: in
 * a line of the file with `.left` behind its name.
 */
import { appendFileSync, watchFile } from 'node:fs'
import { Session } from 'node:inspector'
import { threadId } from 'node:worker_threads'

/** In bytes: memory of the whole process, and objects of the thread with what they hold outside. */
export interface Left {
  thread: number
  memory: number
  inUse: number
}

const LOOK_EVERY = 500

const file = process.env['COLLECT_FILE'] ?? ''
const session = new Session()
session.connect()

watchFile(file, { interval: LOOK_EVERY, persistent: false }, () => {
  session.post('HeapProfiler.collectGarbage', () => {
    const { rss: memory, heapUsed, external } = process.memoryUsage()
    const left: Left = { thread: threadId, memory, inUse: heapUsed + external }
    appendFileSync(`${file}.left`, `${JSON.stringify(left)}\n`)
  })
})
