/**
 * Loaded into the server of the soak: all its threads collect their garbage when the file COLLECT_FILE is written. What
 * they have in memory then is in use, or leaked; else the oldest garbage of half an hour would count.
 */
import { watchFile } from 'node:fs'
import { tidyUp } from '../../src/base/threads/tidy-up.ts'

const LOOK_EVERY = 500

watchFile(process.env['COLLECT_FILE'] ?? '', { interval: LOOK_EVERY, persistent: false }, () => void tidyUp(0))
