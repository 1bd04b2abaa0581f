/**
 * Counts failed authentications by client address: after 20 within a minute the next ones are told to wait
 * (http/README.md "Order of checks", step 2). A good key is let in all the same, so one bad client behind a shared
 * address locks nobody out.
 *
 * The memory is bounded: of 10,000 addresses the one whose minute began first is forgotten.
 */
import { MINUTE, SECOND } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'

export interface FailedLogins {
  /** Throws ServiceError `rate_limited` when it was one too many. */
  note(address: string): void
}

const MOST_FAILURES = 20
const MOST_ADDRESSES = 10_000

export function createFailedLogins({ clock }: { clock: Clock }): FailedLogins {
  /** In the order in which the minutes began. */
  const failures = new Map<string, { since: number; count: number }>()

  return {
    note(address) {
      const now = clock.now()
      const known = failures.get(address)
      if (known === undefined || now - known.since >= MINUTE || now < known.since) {
        failures.delete(address)
        const [oldest] = failures.keys()
        if (failures.size >= MOST_ADDRESSES && oldest !== undefined) failures.delete(oldest)
        failures.set(address, { since: now, count: 1 })
        return
      }
      known.count += 1
      if (known.count <= MOST_FAILURES) return
      const seconds = Math.ceil((known.since + MINUTE - now) / SECOND)
      throw new ServiceError('rate_limited', `too many failed logins from this address; retry in ${seconds} s`, {
        headers: { 'Retry-After': String(seconds) },
      })
    },
  }
}
