/**
 * Collects garbage in a thread that large work has left much of: a thread that has nothing to do does not collect, and
 * would keep the memory of the last messages until the next ones come.
 */
import { getHeapStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** Returns true: at most `mostBytes` are in use, or were after collecting. */
export function tidyUp(mostBytes: number): boolean {
  if (bytesInUse() > mostBytes) collectGarbage()
  return bytesInUse() <= mostBytes
}

function bytesInUse(): number {
  const { used_heap_size: heap, external_memory: outside } = getHeapStatistics()
  return heap + outside
}
