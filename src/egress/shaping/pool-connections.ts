/**
 * How many connections the IPs of a pool have open together, as far as it was told: `connections_max` of pools.yaml
 * holds for all of them.
 */
import { openConnections } from './concurrency.ts'
import type { ShapingRecords } from './records.ts'

interface PoolConnections {
  of(pool: string): number
  /** So many more, or fewer, are open on paths of the IP. */
  add(ip: string, more: number): void
  /** Connections whose end nobody told are gone by now. */
  recount(now: number): void
}

/** `onOpen`: a pool has room again. */
export function createPoolConnections(records: ShapingRecords, onOpen: () => void): PoolConnections {
  const open = new Map<string, number>()
  const of = (pool: string): number => open.get(pool) ?? 0
  return {
    of,
    add(ip, more) {
      if (more === 0) return
      const pool = records.poolOf(ip)
      const before = of(pool)
      open.set(pool, before + more)
      const most = records.poolLimitsOf(ip)?.connections ?? null
      if (more < 0 && most !== null && before >= most) onOpen()
    },
    recount(now) {
      const before = [...open]
      open.clear()
      for (const { ip, concurrency } of records.paths.values()) {
        const count = openConnections(concurrency, now)
        if (count > 0) open.set(records.poolOf(ip), of(records.poolOf(ip)) + count)
      }
      if (before.some(([pool, count]) => of(pool) < count)) onOpen()
    },
  }
}
