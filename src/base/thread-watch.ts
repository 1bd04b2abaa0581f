/**
 * What the worker threads of this process use: prom-client's own metrics know the main thread alone.
 *
 * A thread is watched under a name; one that takes its place takes the name over. Measured when somebody reads. Never
 * throws: a thread that has ended is left out.
 */
import type { EventLoopUtilization } from 'node:perf_hooks'
import type { Worker } from 'node:worker_threads'
import { Gauge } from 'prom-client'
import type { Registry } from 'prom-client'

export interface ThreadWatch {
  watchThread(name: string, worker: Worker): void
  measureThreads(): void
}

interface Watched {
  worker: Worker
  /** At the last reading. */
  before: EventLoopUtilization
}

export function createThreadWatch(registry: Registry): ThreadWatch {
  const registers = [registry]
  const utilization = new Gauge({
    name: 'sternpost_thread_event_loop_utilization',
    help: 'Share of the time since the last reading that a thread worked',
    labelNames: ['thread'],
    registers,
  })
  const watched = new Map<string, Watched>()
  return {
    watchThread(name, worker) {
      watched.set(name, { worker, before: worker.performance.eventLoopUtilization() })
      worker.once('exit', () => {
        if (watched.get(name)?.worker !== worker) return
        watched.delete(name)
        utilization.remove({ thread: name })
      })
    },
    measureThreads() {
      for (const [name, thread] of watched) {
        const now = thread.worker.performance.eventLoopUtilization()
        // Between two readings in the same instant nothing was measured; the clocks of two threads differ a little.
        const { utilization: share } = thread.worker.performance.eventLoopUtilization(now, thread.before)
        if (Number.isFinite(share)) utilization.set({ thread: name }, Math.max(0, share))
        thread.before = now
      }
    },
  }
}
