/**
 * How much an API key may ask for: a bucket of requests and a bucket of recipients (http/README.md "Limits"). A refusal
 * is ServiceError `rate_limited` with Retry-After, and takes nothing. The administrator has no limits.
 */
import { DAY, HOUR, MINUTE, SECOND, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { Rate } from '../../config/settings/field-types.ts'
import { createRateLimit, type RateLimit } from '../../base/rate-limit.ts'

export interface SendingRateOptions {
  clock: Clock
  /** The part `api` of sternpost.yaml; null: no limit. */
  settings: { requests: Rate | null; requests_burst: number; recipients: Rate | null; recipients_burst: number }
}

/** Of the bucket that is nearest to empty. */
interface RateState {
  /** What the full bucket holds. */
  limit: number
  remaining: number
  /** Whole seconds until it is full again. */
  resetSeconds: number
}

/** `apiKeyId` null: the administrator. */
export type SendingRate = ReturnType<typeof createSendingRate>

interface Limit {
  /** Such as `60000 recipients/min`. */
  name: string
  burst: number
  buckets: RateLimit
}

export function createSendingRate({ clock, settings }: SendingRateOptions) {
  const limit = (what: string, rate: Rate | null, burst: number): Limit | null => {
    if (rate === null) return null
    const { count, per_milliseconds: perMilliseconds } = rate
    const name = `${count} ${what}/${UNITS.get(perMilliseconds) ?? `${perMilliseconds} ms`}`
    return { name, burst, buckets: createRateLimit({ clock, count, perMilliseconds, burst }) }
  }
  const requests = limit('requests', settings.requests, settings.requests_burst)
  const recipients = limit('recipients', settings.recipients, settings.recipients_burst)

  return {
    takeRequest: (apiKeyId: string | null) => take(requests, apiKeyId, 1),
    /** All of them or none. */
    takeRecipients: (apiKeyId: string | null, count: number) => take(recipients, apiKeyId, count),
    /** For a request that was refused after all: it sends to nobody. */
    giveBackRecipients(apiKeyId: string | null, count: number) {
      if (apiKeyId !== null) recipients?.buckets.giveBack(apiKeyId, count)
    },
    /** null: no limit holds. */
    state(apiKeyId: string | null) {
      if (apiKeyId === null) return null
      const states = [requests, recipients].flatMap((each) => (each === null ? [] : [stateOf(each, apiKeyId)]))
      states.sort((left, right) => left.remaining / left.limit - right.remaining / right.limit)
      return states[0] ?? null
    },
  }
}

const UNITS: ReadonlyMap<number, string> = new Map([
  [SECOND, 's'],
  [MINUTE, 'min'],
  [HOUR, 'h'],
  [DAY, 'day'],
])

function take(limit: Limit | null, apiKeyId: string | null, tokens: number): void {
  if (limit === null || apiKeyId === null) return
  const wait = limit.buckets.take(apiKeyId, tokens)
  if (wait === 0) return
  const seconds = Math.ceil(wait / SECOND)
  throw new ServiceError('rate_limited', `${limit.name} for this key; retry in ${seconds} s`, {
    headers: { 'Retry-After': String(seconds) },
  })
}

function stateOf({ burst, buckets }: Limit, apiKeyId: string): RateState {
  const { remaining, millisecondsUntilFull } = buckets.state(apiKeyId)
  return { limit: burst, remaining, resetSeconds: Math.ceil(millisecondsUntilFull / SECOND) }
}
