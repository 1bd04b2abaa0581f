/**
 * Finds an IP that reaches nobody while others reach the same receivers: filtered on the way, or not ours any more
 * (egress/README.md "Back-off of a path"). Told once. Pure but for what it remembers; times are Unix milliseconds.
 */
import { MINUTE } from '../../base/clock.ts'
import { recentEntries } from '../../base/recent-entries.ts'

export interface IpReach {
  noteOpened(ip: string, route: string, now: number): void
  /** No TCP connection came about; the sentence to disable the IP with, or undefined. */
  noteFailed(ip: string, route: string, now: number): string | undefined
}

interface Reach {
  /** The last connection; at first when it was tried for the first time. */
  openedAt: number
  /** Routes that failed since, and when last. */
  failed: Map<string, number>
  isTold: boolean
}

const UNREACHABLE_AFTER = 5 * MINUTE
/** Between two tries of one path are up to 5 min at that time. */
const FAILURE_COUNTS_FOR = 10 * MINUTE
const LEAST_ROUTES = 3
const MOST_ROUTES = 20_000

export function createIpReach(): IpReach {
  const reaches = new Map<string, Reach>()
  const lastOpened = recentEntries<string, { ip: string; at: number }>(MOST_ROUTES)

  function reachOf(ip: string, now: number): Reach {
    const known = reaches.get(ip) ?? { openedAt: now, failed: new Map(), isTold: false }
    reaches.set(ip, known)
    return known
  }

  return {
    noteOpened(ip, route, now) {
      const reach = reachOf(ip, now)
      reach.openedAt = now
      reach.failed.clear()
      reach.isTold = false
      lastOpened.set(route, { ip, at: now })
    },
    noteFailed(ip, route, now) {
      const reach = reachOf(ip, now)
      reach.failed.set(route, now)
      if (reach.isTold || now - reach.openedAt < UNREACHABLE_AFTER) return undefined
      for (const [failed, at] of reach.failed) if (now - at > FAILURE_COUNTS_FOR) reach.failed.delete(failed)
      const other = [...reach.failed.keys()]
        .map((failed) => lastOpened.get(failed))
        .find((opened) => opened !== undefined && opened.ip !== ip && now - opened.at < UNREACHABLE_AFTER)
      if (reach.failed.size < LEAST_ROUTES || other === undefined) return undefined
      reach.isTold = true
      return (
        `none of ${reach.failed.size} receivers answers this IP for ${UNREACHABLE_AFTER / MINUTE} min, while ` +
        `${other.ip} reaches them`
      )
    },
  }
}
