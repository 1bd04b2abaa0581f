/**
 * How much waits, for whom and why, as the dispatcher remembers it: for acceptance, the statistics of an IP, metrics.
 * Counts of keys with very many rows are lower bounds until this process has accepted or sent them; a walk over the
 * keys corrects what is wrong.
 */
import { CAPTURE_ROUTE, HELD_UNTIL, UNROUTED, type WaitingFor } from '../../store/records/queue-records.ts'
import type { ClaimParts } from './claim-round.ts'
import type { KeyEntry } from './due-keys.ts'

export function createQueueFigures({ directory, routes, egress, clock }: ClaimParts) {
  function ispOf({ route }: KeyEntry): string {
    if (route === UNROUTED) return ''
    const { isp, provider } = routes.behind(route)
    // A route whose domain nobody looked up since the start stands for itself.
    return provider === null && isp === route ? '' : isp
  }

  function reasonOf(entry: Readonly<KeyEntry>): WaitingFor {
    const { earliestAt, isDue, isRetry, waitingFor } = entry
    const closure = directory.closureOf(entry)
    if (closure !== null) return closure.waitingFor
    // In its turn.
    if (isDue || earliestAt <= clock.now()) return 'connections'
    if (earliestAt >= HELD_UNTIL) return 'held'
    return waitingFor ?? (isRetry ? 'retry_delay' : 'send_at')
  }

  return {
    /** First attempts that wait in a pool, by isp; '' for those whose provider is not known yet. */
    backlogOf(pool: string): Record<string, number> {
      const backlog: Record<string, number> = Object.create(null)
      for (const entry of directory.entries()) {
        if (entry.pool !== pool || entry.isRetry) continue
        const isp = ispOf(entry)
        backlog[isp] = (backlog[isp] ?? 0) + entry.waiting
      }
      return backlog
    },
    /** Messages that could leave from this IP, by isp and reason, most first. */
    waitingOf(ip: string) {
      const pools = egress.poolNames().filter((pool) => egress.ipsUsedBy(pool).some(({ address }) => address === ip))
      const counts = new Map<string, { isp: string; reason: WaitingFor; count: number }>()
      for (const entry of directory.entries()) {
        if (!pools.includes(entry.pool)) continue
        const [isp, reason] = [ispOf(entry), reasonOf(entry)]
        const known = counts.get(`${isp} ${reason}`)
        counts.set(`${isp} ${reason}`, { isp, reason, count: (known?.count ?? 0) + entry.waiting })
      }
      return [...counts.values()].toSorted((left, right) => right.count - left.count)
    },
    /** What waits in each pool, and since when the first of it is due; null: nothing is. */
    waitingByPool() {
      const pools = new Map<string, { waiting: number; dueSince: number | null }>()
      for (const { pool, route, waiting, earliestAt } of directory.entries()) {
        if (route === CAPTURE_ROUTE || waiting === 0) continue
        const known = pools.get(pool) ?? { waiting: 0, dueSince: null }
        const dueSince = earliestAt > clock.now() ? null : earliestAt
        known.waiting += waiting
        if (dueSince !== null) known.dueSince = Math.min(dueSince, known.dueSince ?? dueSince)
        pools.set(pool, known)
      }
      return pools
    },
    waitingByReason(): Partial<Record<WaitingFor, number>> {
      const counts: Partial<Record<WaitingFor, number>> = {}
      for (const entry of directory.entries()) {
        if (entry.route === CAPTURE_ROUTE) continue
        const reason = reasonOf(entry)
        counts[reason] = (counts[reason] ?? 0) + entry.waiting
      }
      return counts
    },
  }
}
