/** What a verb brought into the queue, added up by queue key for the scheduler's directory. */
import { UNROUTED, type QueuedRows, type QueueKey, type QueueKeyState } from '../../records/queue-records.ts'

export interface QueuedTally {
  /** Rows of one key, the first of them due at `dueAt`. */
  add(key: QueueKey, recipientDomain: string, dueAt: number): void
  result(): QueuedRows
}

export function createQueuedTally(): QueuedTally {
  const keys = new Map<string, QueueKeyState>()
  const unroutedDomains = new Set<string>()
  return {
    add({ pool, route, domain, stream, isRetry }, recipientDomain, dueAt) {
      const name = `${pool}\0${route}\0${domain}\0${stream}\0${isRetry}`
      const known = keys.get(name)
      if (known === undefined) {
        keys.set(name, { pool, route, domain, stream, isRetry, earliestAt: dueAt, waiting: 1 })
      } else {
        known.waiting += 1
        known.earliestAt = Math.min(known.earliestAt, dueAt)
      }
      if (route === UNROUTED) unroutedDomains.add(recipientDomain)
    },
    result: () => ({ keys: [...keys.values()], unroutedDomains: [...unroutedDomains] }),
  }
}

/** Of several parts of one action. */
export function mergeQueued(parts: readonly QueuedRows[]): QueuedRows {
  const keys = new Map<string, QueueKeyState>()
  for (const state of parts.flatMap((part) => part.keys)) {
    const { earliestAt, waiting, ...key } = state
    const name = JSON.stringify(Object.values(key))
    const known = keys.get(name)
    keys.set(name, {
      ...key,
      earliestAt: Math.min(earliestAt, known?.earliestAt ?? Infinity),
      waiting: waiting + (known?.waiting ?? 0),
    })
  }
  return { keys: [...keys.values()], unroutedDomains: [...new Set(parts.flatMap((part) => part.unroutedDomains))] }
}
