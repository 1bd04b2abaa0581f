/**
 * Token buckets, one for each key, which refill continuously. A take that is refused takes nothing; one that is larger
 * than the bucket waits for a full one and leaves it in debt. A key that was forgotten has a full bucket when it comes
 * again. A clock that goes back refills nothing. Never waits and never throws.
 */
import type { Clock } from './clock.ts'
import { recentEntries } from './recent-entries.ts'

interface RateLimitOptions {
  clock: Pick<Clock, 'now'>
  /** So many tokens flow in … */
  count: number
  /** … during so many milliseconds. */
  perMilliseconds: number
  burst: number
  mostKeys?: number
}

export type RateLimit = ReturnType<typeof createRateLimit>

interface Bucket {
  /** Below 0 after a take larger than the bucket. */
  tokens: number
  at: number
}

const MOST_KEYS = 10_000

export function createRateLimit(options: RateLimitOptions) {
  const { clock, count, perMilliseconds, burst, mostKeys = MOST_KEYS } = options
  const buckets = recentEntries<string, Bucket>(mostKeys)

  function refilled(key: string): Bucket {
    const now = clock.now()
    const bucket = buckets.get(key) ?? { tokens: burst, at: now }
    const elapsed = Math.max(0, now - bucket.at)
    return { tokens: Math.min(burst, bucket.tokens + (elapsed * count) / perMilliseconds), at: now }
  }

  const millisecondsFor = (tokens: number): number => Math.ceil((Math.max(0, tokens) * perMilliseconds) / count)

  return {
    /** 0: taken. Else nothing was taken, and so many milliseconds later it could be. */
    take(key: string, tokens = 1): number {
      const bucket = refilled(key)
      const missing = Math.min(tokens, burst) - bucket.tokens
      // Fractions of a token are sums of many refills, which never come out exactly even.
      const isRefused = missing > ROUNDING
      buckets.set(key, isRefused ? bucket : { ...bucket, tokens: bucket.tokens - tokens })
      return isRefused ? Math.max(1, millisecondsFor(missing)) : 0
    },
    giveBack(key: string, tokens: number): void {
      const bucket = refilled(key)
      buckets.set(key, { ...bucket, tokens: Math.min(burst, bucket.tokens + tokens) })
    },
    /** Whole tokens that are left, never below 0, and the time until the bucket is full. */
    state(key: string) {
      const { tokens } = refilled(key)
      const remaining = Math.max(0, Math.floor(tokens + ROUNDING))
      return { remaining, millisecondsUntilFull: millisecondsFor(burst - tokens) }
    },
  }
}

const ROUNDING = 1e-6
