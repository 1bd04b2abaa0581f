/** Starts the worker of a delivery thread. */
import { setFlagsFromString } from 'node:v8'
import { Worker } from 'node:worker_threads'
import type { DeliveryThreadSettings } from './session/delivery-thread.ts'

/**
 * Megabytes of old objects before the first full collection of a thread; V8 begins at a few. The bytes of a message
 * live for one or two commits, which is long enough to count as old: a thread under load would look through its whole
 * heap some times a second, for a tenth of all that a message costs. Read when a heap is made.
 */
const OLD_SPACE_MEGABYTES = 64

export function startWorker(workerData: DeliveryThreadSettings): Worker {
  setFlagsFromString(`--initial-old-space-size=${OLD_SPACE_MEGABYTES}`)
  return new Worker(new URL('./session/delivery-thread.ts', import.meta.url), { workerData, name: 'delivery' })
}
