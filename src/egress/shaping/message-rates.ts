/** The message rates of paths and pools, both of which must have a token (egress/README.md "Rates"). In memory only. */
import { LRUCache } from 'lru-cache'
import { SECOND } from '../../base/clock.ts'
import {
  giveTokensBack,
  nextTokenAt,
  takeTokens,
  tokensAt,
  type PaceState,
  type SteadyPace,
  type Tokens,
} from '../../base/pace.ts'
import type { Rate } from '../../config/settings/field-types.ts'
import type { LimitsNow } from './path-limits.ts'
import type { PathRecord, ShapingRecords } from './records.ts'
import type { ShapedPath } from './shaping.ts'

export type MessageRates = ReturnType<typeof createMessageRates>

const MOST_RATES = 100
const MOST_MESSAGES_AT_ONCE = 100
/** Milliseconds: a second divided by a rate does not come out exactly even. */
const ROUNDING = 1e-3

/** A second's worth at once, 1 to 100 messages. */
export function messagePace({ count, per_milliseconds }: Rate): SteadyPace {
  const interval = per_milliseconds / count
  return { interval, burst: Math.min(Math.max(1, Math.floor((SECOND + ROUNDING) / interval)), MOST_MESSAGES_AT_ONCE) }
}

export function createMessageRates(records: Pick<ShapingRecords, 'poolLimitsOf'>) {
  const poolStates = new Map<string, PaceState>()
  const paces = new LRUCache<string, SteadyPace>({ max: MOST_RATES })

  function paceOf(rate: Rate): SteadyPace {
    const name = `${rate.count}/${rate.per_milliseconds}`
    const pace = paces.get(name) ?? messagePace(rate)
    paces.set(name, pace)
    return pace
  }

  /** Undefined: the pool has no rate of its own. */
  function poolBucket(path: ShapedPath): { state: PaceState; pace: SteadyPace } | undefined {
    const limits = records.poolLimitsOf(path.ip)
    if (limits === undefined || limits.rate === null) return undefined
    const state = poolStates.get(limits.pool) ?? { arrivalAt: 0 }
    poolStates.set(limits.pool, state)
    return { state, pace: paceOf(limits.rate) }
  }

  return {
    take(path: ShapedPath, record: PathRecord, { rate }: LimitsNow, wanted: { now: number; count: number }): Tokens {
      const { now, count } = wanted
      const pace = paceOf(rate)
      const pool = poolBucket(path)
      const most = pool === undefined ? count : Math.min(count, tokensAt(pool.state, pool.pace, now))
      const { granted } = takeTokens(record.pace, pace, now, most)
      if (pool !== undefined) takeTokens(pool.state, pool.pace, now, granted)
      if (granted === count) return { granted, nextAt: null }
      const ofPool = pool === undefined ? now : nextTokenAt(pool.state, pool.pace, now)
      // At least a millisecond later: nothing is asked again in the same moment.
      return { granted, nextAt: Math.max(nextTokenAt(record.pace, pace, now), ofPool, now + 1) }
    },
    giveBack(path: ShapedPath, record: PathRecord, { rate }: LimitsNow, count: number): void {
      giveTokensBack(record.pace, paceOf(rate), count)
      const pool = poolBucket(path)
      if (pool !== undefined) giveTokensBack(pool.state, pool.pace, count)
    },
    nextAt(path: ShapedPath, record: PathRecord | undefined, { rate }: LimitsNow, now: number): number {
      const pool = poolBucket(path)
      const ofPool = pool === undefined ? now : nextTokenAt(pool.state, pool.pace, now)
      if (record === undefined || record.pace.arrivalAt <= now) return ofPool
      return Math.max(nextTokenAt(record.pace, paceOf(rate), now), ofPool)
    },
  }
}
