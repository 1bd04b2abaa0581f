/**
 * Loaded into the server of the soak: all its threads collect their garbage when the file COLLECT_FILE is written, and
 * give back the memory. What they have then is in use, or leaked; else the oldest garbage of half an hour would count,
 * and room that the runtime keeps for the next.
 */
import { watchFile } from 'node:fs'
import { Session } from 'node:inspector'

const LOOK_EVERY = 500

const session = new Session()
session.connect()

watchFile(process.env['COLLECT_FILE'] ?? '', { interval: LOOK_EVERY, persistent: false }, () => {
  session.post('HeapProfiler.collectGarbage')
})
