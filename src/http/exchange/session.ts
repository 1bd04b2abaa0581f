/**
 * The session of the console: its cookie, and requests that come with it (http/README.md "Console"). The cookie stands
 * in place of an API key, and only for requests of our own pages: others are 403, whatever they carry.
 */
import type { IncomingMessage } from 'node:http'
import { TLSSocket } from 'node:tls'
import { ServiceError } from '../../base/errors.ts'
import type { Authenticate, FailedLogins } from './authenticate.ts'
import { clientAddress, isTrusted } from './client-address.ts'
import type { Logins } from './logins.ts'
import { principalOfKey, principalOfPerson } from './principal.ts'

/** No form can send it, and no page of another origin without being asked first (CORS). */
const CONSOLE_HEADER = 'x-sternpost-console'
const READING = ['GET', 'HEAD']

interface SessionAuthenticationOptions {
  logins: Pick<Logins, 'session' | 'isAlive'>
  trustedProxies: readonly string[]
  /** A server for development: test keys see everything. */
  testMode: boolean
  failedLogins: FailedLogins
  /** For requests with a key, or without a cookie. */
  otherwise: Authenticate
}

export function createSessionAuthentication(options: SessionAuthenticationOptions): Authenticate {
  const { logins, trustedProxies, testMode, failedLogins, otherwise } = options
  return async (request) => {
    const secret = hasKey(request) ? undefined : sessionSecret(request, trustedProxies)
    if (secret === undefined) return otherwise(request)
    refuseForeignPage(request)
    if (!READING.includes(request.method ?? '') && request.headers[CONSOLE_HEADER] === undefined) {
      throw new ServiceError('forbidden', `a session changes things only with the header ${CONSOLE_HEADER}`)
    }
    const address = clientAddress(request, trustedProxies)
    try {
      const { who } = await logins.session(secret, address)
      const principal = 'role' in who ? principalOfPerson(who, testMode) : principalOfKey(who, testMode)
      return { ...principal, isAlive: () => logins.isAlive(secret, address) }
    } catch (thrown) {
      if (thrown instanceof ServiceError && thrown.code === 'unauthorized') failedLogins.note(address)
      throw thrown
    }
  }
}

/** A proxy that asks for a password of its own leaves `Basic` there: that is no key. */
function hasKey({ headers }: IncomingMessage): boolean {
  return /^bearer\b/i.test(headers.authorization ?? '')
}

/** A page of another origin may neither read nor log in or out, whatever cookies a browser sends along. */
export function refuseForeignPage({ headers, method }: IncomingMessage): void {
  const site = headers['sec-fetch-site']
  const isTyped = site === 'none' && READING.includes(method ?? '')
  const isOwnSite = site === undefined || site === 'same-origin' || isTyped
  const isOwnOrigin = headers.origin === undefined || isOriginOf(headers.origin, headers.host)
  if (!isOwnSite || !isOwnOrigin)
    throw new ServiceError('forbidden', 'a page of another origin may not use the console')
}

/** Also where a proxy adds the port that a browser leaves out. */
function isOriginOf(origin: string, host = ''): boolean {
  if (!URL.canParse(origin)) return false
  const { protocol, host: own } = new URL(origin)
  const named = `${protocol}//${host}`
  return URL.canParse(named) && new URL(named).host === own
}

/** From the cookie, or undefined. */
export function sessionSecret(request: IncomingMessage, trustedProxies: readonly string[]): string | undefined {
  const start = `${cookieName(request, trustedProxies)}=`
  const cookies = request.headers.cookie?.split(';').map((cookie) => cookie.trim())
  return cookies?.find((cookie) => cookie.startsWith(start))?.slice(start.length)
}

/** For Set-Cookie; an empty secret ends it. `seconds`: until the browser forgets it. */
export function sessionCookie(
  request: IncomingMessage,
  trustedProxies: readonly string[],
  { secret, seconds }: { secret: string; seconds: number },
): string {
  const secure = isOverTls(request, trustedProxies) ? '; Secure' : ''
  const name = cookieName(request, trustedProxies)
  return `${name}=${secret}; Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict${secure}`
}

/** `__Host-` asks for Secure. Without TLS, on loopback, several servers share a host name, and the port tells them apart. */
function cookieName(request: IncomingMessage, trustedProxies: readonly string[]): string {
  return isOverTls(request, trustedProxies) ? '__Host-sternpost' : `sternpost-${request.socket.localPort}`
}

function isOverTls(request: IncomingMessage, trustedProxies: readonly string[]): boolean {
  if (request.socket instanceof TLSSocket) return true
  const peer = request.socket.remoteAddress ?? ''
  return request.headers['x-forwarded-proto'] === 'https' && isTrusted(peer, trustedProxies)
}
