/**
 * Collects garbage in a thread that large work has left much of: a thread that has nothing to do does not collect, and
 * would keep the memory of the last messages until the next ones come.
 */
import { SECOND } from '../clock.ts'
import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as (how?: Record<string, string>) => void

/** Returns true: at most `mostBytes` are in use, or were after collecting. */
export function tidyUp(mostBytes: number): boolean {
  if (bytesInUse() > mostBytes) collectGarbage()
  return bytesInUse() <= mostBytes
}

/**
 * What is not in use is the system's again. The other collections keep its pages for what comes next; this one takes ten
 * times as long.
 */
export function giveBackMemory(): void {
  collectGarbage({ type: 'major', execution: 'sync', flavor: 'last-resort' })
}

/** Looks every two seconds, as long as the thread lives. */
export function keepTidy(mostBytes: number): void {
  setInterval(() => tidyUp(mostBytes), TIDY_EVERY).unref()
}

const TIDY_EVERY = 2 * SECOND

function bytesInUse(): number {
  const { used_heap_size: heap, external_memory: outside } = getHeapStatistics()
  return heap + outside
}
