/**
 * `Authorization: Bearer <API key>` -> who asks (http/README.md "Order of checks", step 2). Every failure is 401, or
 * 429 when there were too many from one address; a good key is let in all the same. A key in the query or the body is
 * not read.
 */
import type { IncomingMessage } from 'node:http'
import { MINUTE, SECOND, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { clientKey } from '../../base/ip-address.ts'
import { clientAddress } from './client-address.ts'
import type { HttpFeatures } from './features.ts'
import { administrator, principalOfKey, type Principal } from './principal.ts'

/** The scheme in any case, spaces, and the key. */
const BEARER = /^Bearer +(\S+)$/i

export type Authenticate = (request: IncomingMessage) => Promise<Principal>

interface KeyAuthenticationOptions {
  apiKeys: Pick<HttpFeatures['apiKeys'], 'authenticate'>
  trustedProxies: readonly string[]
  failedLogins: FailedLogins
  /** A server for development: test keys see everything. */
  testMode: boolean
}

export function createKeyAuthentication(options: KeyAuthenticationOptions): Authenticate {
  const { apiKeys, trustedProxies, failedLogins, testMode } = options
  return async (request) => {
    const address = clientAddress(request, trustedProxies)
    try {
      return principalOfKey(await apiKeys.authenticate(bearerOf(request), address), testMode)
    } catch (thrown) {
      if (thrown instanceof ServiceError && thrown.code === 'unauthorized') failedLogins.note(address)
      throw thrown
    }
  }
}

function bearerOf({ headers }: IncomingMessage): string {
  const header = headers.authorization
  if (header === undefined) throw new ServiceError('unauthorized', 'the Authorization header is missing')
  const key = BEARER.exec(header)?.[1]
  if (key === undefined) throw new ServiceError('unauthorized', 'the Authorization header is not "Bearer <API key>"')
  return key
}

/** On the admin socket: whoever could open it is the administrator; X-Sternpost-User names the person for the log. */
export const authenticateAdministrator: Authenticate = async (request) => {
  const name = request.headers['x-sternpost-user']
  return administrator(typeof name === 'string' ? name : undefined)
}

export type FailedLogins = ReturnType<typeof createFailedLogins>

const MOST_FAILURES = 20
const MOST_ADDRESSES = 10_000

/** Of 10,000 addresses the one whose minute began first is forgotten. */
export function createFailedLogins({ clock }: { clock: Clock }) {
  /** In the order in which the minutes began. */
  const failures = new Map<string, { since: number; count: number }>()

  return {
    /** Throws ServiceError `rate_limited` when it was one too many. */
    note(client: string) {
      const now = clock.now()
      const address = clientKey(client)
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
