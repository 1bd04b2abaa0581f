/**
 * How much mail of a pool waits for its first attempt, cheap enough to be asked for each request.
 *
 * The queue is counted at most once a second; in between, what was accepted is added and what was granted is taken
 * away. Mail whose acceptance is under way counts as well, so that requests at the same moment do not share one place.
 */
import { SECOND } from '../../base/clock.ts'
import { ANY_ISP } from '../warmup/forecast.ts'
import type { EgressOutside } from './outside.ts'

export interface PoolBacklog {
  /** By isp; ANY_ISP: of which no provider is known yet. `granted`: what the pool's IPs were granted today. */
  of(pool: string, granted: number): Record<string, number>
  /** Mail that is being accepted; the returned function says whether it was. */
  expect(pool: string, count: number): (wasStored: boolean) => void
}

interface Count {
  takenAt: number
  byIsp: Record<string, number>
  unknown: number
  grantedThen: number
  /** Accepted since. */
  arrived: number
}

const COUNTED_EVERY = SECOND

export function createPoolBacklog({ clock, backlogOf }: EgressOutside): PoolBacklog {
  const counts = new Map<string, Count>()
  const arriving = new Map<string, number>()

  function countOf(pool: string, granted: number): Count {
    const now = clock.now()
    const known = counts.get(pool)
    // A new day begins with nothing granted.
    const isFresh = known !== undefined && granted >= known.grantedThen
    if (isFresh && now >= known.takenAt && now < known.takenAt + COUNTED_EVERY) return known
    const { '': unknown = 0, ...byIsp } = backlogOf(pool)
    const count = { takenAt: now, byIsp, unknown, grantedThen: granted, arrived: 0 }
    counts.set(pool, count)
    return count
  }

  return {
    of(pool, granted) {
      const { byIsp, unknown, grantedThen, arrived } = countOf(pool, granted)
      const added = arrived + (arriving.get(pool) ?? 0)
      return less({ ...byIsp, [ANY_ISP]: unknown + added }, granted - grantedThen)
    },
    expect(pool, count) {
      arriving.set(pool, (arriving.get(pool) ?? 0) + count)
      return (wasStored) => {
        arriving.set(pool, (arriving.get(pool) ?? 0) - count)
        const known = counts.get(pool)
        if (wasStored && known !== undefined) known.arrived += count
      }
    },
  }
}

/** Which isps the grants were for is not asked: the total is what decides. */
function less(backlog: Record<string, number>, granted: number): Record<string, number> {
  let left = granted
  const entries = Object.entries(backlog).map(([isp, count]): [string, number] => {
    const taken = Math.min(left, count)
    left -= taken
    return [isp, count - taken]
  })
  return Object.fromEntries(entries)
}
