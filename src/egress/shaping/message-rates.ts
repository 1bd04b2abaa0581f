/**
 * The message rates of paths and pools, both of which must have a token (egress/README.md "Rates"). In memory only.
 */
import { LRUCache } from 'lru-cache'
import type { Rate } from '../../config/settings/field-types.ts'
import type { ShapedPath, Tokens } from './shaping.ts'
import type { LimitsNow } from './limits-now.ts'
import { giveTokensBack, messagePace, nextTokenAt, takeTokens, tokensAt } from './pace.ts'
import type { Pace, PaceState } from './pace.ts'
import type { PathRecord, ShapingRecords } from './records.ts'

export interface MessageRates {
  take(path: ShapedPath, record: PathRecord, limits: LimitsNow, now: number, count: number): Tokens
  giveBack(path: ShapedPath, record: PathRecord, limits: LimitsNow, count: number): void
  /** When a message may go: now, or later. */
  nextAt(path: ShapedPath, record: PathRecord | undefined, limits: LimitsNow, now: number): number
}

const MOST_RATES = 100

export function createMessageRates(records: Pick<ShapingRecords, 'poolLimitsOf'>): MessageRates {
  const poolStates = new Map<string, PaceState>()
  const paces = new LRUCache<string, Pace>({ max: MOST_RATES })

  /** There are few different ones. */
  function paceOf(rate: Rate): Pace {
    const name = `${rate.count}/${rate.per_milliseconds}`
    const pace = paces.get(name) ?? messagePace(rate)
    paces.set(name, pace)
    return pace
  }

  /** Undefined: the pool has no rate of its own. */
  function poolBucket(path: ShapedPath): { state: PaceState; pace: Pace } | undefined {
    const limits = records.poolLimitsOf(path.ip)
    if (limits === undefined || limits.rate === null) return undefined
    const state = poolStates.get(limits.pool) ?? { arrivalAt: 0 }
    poolStates.set(limits.pool, state)
    return { state, pace: paceOf(limits.rate) }
  }

  return {
    take(path, record, { rate }, now, count) {
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
    giveBack(path, record, { rate }, count) {
      giveTokensBack(record.pace, paceOf(rate), count)
      const pool = poolBucket(path)
      if (pool !== undefined) giveTokensBack(pool.state, pool.pace, count)
    },
    nextAt(path, record, { rate }, now) {
      const pool = poolBucket(path)
      const ofPool = pool === undefined ? now : nextTokenAt(pool.state, pool.pace, now)
      if (record === undefined || record.pace.arrivalAt <= now) return ofPool
      return Math.max(nextTokenAt(record.pace, paceOf(rate), now), ofPool)
    },
  }
}
