/**
 * Hosts that failed a short while ago: they are asked last, so that others of the same domain get the connection.
 *
 * By egress IP and address, for 2 min, for 15 min when nothing answered at all; one success clears it. Bounded; the
 * clock is the monotonic one of the cache. egress/README.md "Back-off of a path", network/README.md "Mail hosts".
 */
import { LRUCache } from 'lru-cache'
import { MINUTE } from '../../base/clock.ts'

export interface HostMemory {
  isAside(source: string, address: string): boolean
  failed(source: string, address: string, isTimeout: boolean): void
  worked(source: string, address: string): void
}

const MOST_HOSTS = 20_000
const ASIDE_FOR = 2 * MINUTE
const ASIDE_AFTER_TIMEOUT = 15 * MINUTE

export function createHostMemory(): HostMemory {
  const aside = new LRUCache<string, true>({ max: MOST_HOSTS })
  return {
    isAside: (source, address) => aside.has(`${source} ${address}`),
    failed(source, address, isTimeout) {
      aside.set(`${source} ${address}`, true, { ttl: isTimeout ? ASIDE_AFTER_TIMEOUT : ASIDE_FOR })
    },
    worked: (source, address) => void aside.delete(`${source} ${address}`),
  }
}
