/**
 * `Authorization: Bearer <API key>` -> who asks (http/README.md "Order of checks", step 2). Every failure is 401
 * `unauthorized`, or 429 `rate_limited` when there were too many from one address. A key in the query string or the
 * body is not read.
 */
import type { IncomingMessage } from 'node:http'
import { ServiceError } from '../../base/errors.ts'
import { clientAddress } from './client-address.ts'
import type { FailedLogins } from './failed-logins.ts'
import type { HttpFeatures } from './features.ts'
import { administrator } from './principal.ts'
import type { Principal } from './principal.ts'

/** The scheme in any case, spaces, and the key. */
const BEARER = /^Bearer +(\S+)$/i

export type Authenticate = (request: IncomingMessage) => Promise<Principal>

export interface KeyAuthenticationOptions {
  apiKeys: Pick<HttpFeatures['apiKeys'], 'authenticate'>
  trustedProxies: readonly string[]
  failedLogins: FailedLogins
}

export function createKeyAuthentication(options: KeyAuthenticationOptions): Authenticate {
  const { apiKeys, trustedProxies, failedLogins } = options
  return async (request) => {
    const address = clientAddress(request, trustedProxies)
    try {
      const record = await apiKeys.authenticate(bearerOf(request), address)
      const { id: apiKeyId, mode, scopes, domains, allowedIps, name, last4 } = record
      return { apiKeyId, mode, scopes, domains, allowedIps, label: `${name} …${last4}` }
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
