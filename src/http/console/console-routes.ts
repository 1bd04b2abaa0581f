/**
 * `/console/`: logging in and out, the shell of the application, and its files (http/README.md "Console"). What the
 * application shows comes from the API, with the session in place of a key. Each refused login is in the log with its
 * reason; whoever tried learns only that it did not work.
 */
import type { Middleware } from 'koa'
import { SECOND } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import { packageVersion } from '../../base/package-version.ts'
import type { Domains } from '../../senders/domains.ts'
import { sendJson, type RequestContext, type RequestState } from '../exchange/answer-request.ts'
import type { Authenticate, FailedLogins } from '../exchange/authenticate.ts'
import type { BodyLimit, BodyReader } from '../exchange/body-reader.ts'
import { clientAddress } from '../exchange/client-address.ts'
import type { Logins, OpenedSession, Visitor } from '../exchange/logins.ts'
import { siteOf, type Passkeys } from '../exchange/passkeys.ts'
import type { Principal } from '../exchange/principal.ts'
import { createNote } from '../exchange/route.ts'
import { splitTarget } from '../exchange/route-table.ts'
import { refuseForeignPage, sessionCookie, sessionSecret } from '../exchange/session.ts'
import type { Asset, ConsoleAssets } from './console-assets.ts'
import { createPasskeyRoutes, readJson, sendData } from './passkey-routes.ts'
import { CONSOLE_POLICY, entrancePage, linkPage, recordsPage, shellPage } from './console-pages.ts'

interface ConsoleRoutesOptions {
  logins: Logins
  passkeys: Passkeys
  domains: Pick<Domains, 'linked'>
  assets: () => Promise<ConsoleAssets>
  bodies: BodyReader
  failedLogins: FailedLogins
  /** By the session's cookie. */
  authenticate: Authenticate
  /** A server for development. */
  testMode: boolean
  trustedProxies: readonly string[]
  logger: Logger
}

const ROOT = '/console'
const FORM_LIMIT: BodyLimit = { bytes: 4 * 1024, code: 'payload_too_large' }
/** Names hold a hash of the content. */
const FOR_EVER = 'public, max-age=31536000, immutable'
const REFUSED =
  'This did not log in: a link works once and for 15 minutes, a key as long as it is in force. ' +
  '<code>sternpost console open</code> prints a new link.'

export function createConsoleRoutes(options: ConsoleRoutesOptions): Middleware<RequestState> {
  const entrance = createEntrance(options)
  const passkeyRoutes = createPasskeyRoutes({ ...options, note: createNote(options.logger, options.logins) })
  const { assets, domains, logins, trustedProxies, authenticate, testMode } = options

  const showShell = async (ctx: RequestContext, screen: string): Promise<void> => {
    const { script, style, preloadsOf } = await assets()
    const preloads = preloadsOf(screen).map(pathOf)
    sendPage(ctx, shellPage({ script: pathOf(script), style: pathOf(style), preloads }))
  }
  const showRecords = async (ctx: RequestContext, domain: string, signed: string): Promise<void> => {
    const found = await domains.linked(domain, signed)
    if (found === null) throw new ServiceError('not_found', 'the link is over, or it was changed on its way here')
    sendPage(ctx, recordsPage(pathOf((await assets()).style), found.domain, found.records))
  }
  const logOut = async (ctx: RequestContext): Promise<void> => {
    refuseForeignPage(ctx.req)
    const secret = sessionSecret(ctx.req, trustedProxies)
    if (secret !== undefined) await logins.endOwn(secret)
    ctx.res.setHeader('Set-Cookie', sessionCookie(ctx.req, trustedProxies, { secret: '', seconds: 0 }))
    redirect(ctx, `${ROOT}/login`)
  }
  return async function showConsole(ctx, next) {
    const { path } = splitTarget(ctx.req.url ?? '')
    if (path !== ROOT && !path.startsWith(`${ROOT}/`)) return next()
    ctx.state.pattern = ROOT
    const below = path.slice(ROOT.length + 1)
    const [place = '', rest = '', last = ''] = below.split('/', 3)
    if (place === 'login') return entrance(ctx, rest, last)
    if (place === 'passkeys') return passkeyRoutes(ctx, rest)
    if (ctx.method === 'POST' && below === 'logout') return logOut(ctx)
    if (ctx.method !== 'GET' && ctx.method !== 'HEAD') {
      throw new ServiceError('method_not_allowed', 'allowed: GET', { headers: { Allow: 'GET, HEAD' } })
    }
    if (path === ROOT) return redirect(ctx, `${ROOT}/`)
    if (below === 'session') return sendJson(ctx, 200, sessionJson(await authenticate(ctx.req), testMode))
    if (place === 'dns') return showRecords(ctx, rest, last)
    if (place === 'assets') return sendAsset(ctx, (await assets()).files.get(rest))
    await showShell(ctx, place)
  }
}

/** `/console/login`, with a key in a form, and `/console/login/{secret of a link}`. A GET uses nothing up. */
function createEntrance(options: ConsoleRoutesOptions) {
  const { logins, passkeys, assets, bodies, failedLogins, trustedProxies, logger } = options
  const files = async () => {
    const { style, login } = await assets()
    return { style: pathOf(style), script: pathOf(login) }
  }
  const openWithPasskey = async (ctx: RequestContext, _link: string, visitor: Visitor): Promise<OpenedSession> =>
    passkeys.open(siteOf(ctx.req), await readJson(ctx, bodies), visitor)

  const open = async (ctx: RequestContext, link: string, visitor: Visitor): Promise<OpenedSession> => {
    const body = await bodies.read(ctx.req, ctx.res, FORM_LIMIT)
    bodies.release(body.length)
    if (link !== '') return logins.openWithLink(link, visitor)
    return logins.openWithKey(new URLSearchParams(body.toString('utf8')).get('key') ?? '', visitor)
  }

  const logIn = async (ctx: RequestContext, link: string, entry = open): Promise<boolean> => {
    const visitor = { address: clientAddress(ctx.req, trustedProxies), userAgent: ctx.get('User-Agent') }
    try {
      refuseForeignPage(ctx.req)
      const { secret, who, milliseconds } = await entry(ctx, link, visitor)
      const seconds = milliseconds / SECOND
      ctx.res.setHeader('Set-Cookie', sessionCookie(ctx.req, trustedProxies, { secret, seconds }))
      logger.info({ who, remote_address: visitor.address }, 'logged in to the console')
      logins.note({ actor: who, act: 'logged in', facts: { ...visitor }, requestId: ctx.state.requestId })
      return true
    } catch (thrown) {
      if (!(thrown instanceof ServiceError) || !['unauthorized', 'forbidden'].includes(thrown.code)) throw thrown
      // Behind the limit there is no line either: nobody fills the log.
      failedLogins.note(visitor.address)
      logger.warn({ reason: thrown.details, remote_address: visitor.address }, 'login to the console refused')
      if (entry === openWithPasskey) throw thrown
      sendPage(ctx, entrancePage(await files(), REFUSED), thrown.code === 'forbidden' ? 403 : 401)
      return false
    }
  }
  const passkeyLogin = async (ctx: RequestContext, rest: string): Promise<void> => {
    if (rest === 'options') {
      refuseForeignPage(ctx.req)
      return sendData(ctx, await passkeys.loginOptions(siteOf(ctx.req)))
    }
    await logIn(ctx, '', openWithPasskey)
    sendData(ctx, {})
  }

  return async (ctx: RequestContext, link: string, rest: string): Promise<void> => {
    if (ctx.method === 'POST' && link === 'passkey') return passkeyLogin(ctx, rest)
    if (ctx.method === 'POST') return void ((await logIn(ctx, link)) && redirect(ctx, `${ROOT}/`))
    sendPage(ctx, link === '' ? entrancePage(await files(), null) : linkPage(pathOf((await assets()).style)))
  }
}

/** Whose session it is, for the application. */
function sessionJson({ label, person, scopes, domains }: Principal, testMode: boolean): string {
  const data = {
    name: label,
    role: person?.role ?? null,
    scopes,
    domains,
    development: testMode,
    version: packageVersion(),
  }
  return JSON.stringify({ success: true, data })
}

const pathOf = (name: string): string => `${ROOT}/assets/${name}`

function redirect(ctx: RequestContext, path: string): void {
  ctx.status = 303
  ctx.res.setHeader('Location', path)
  ctx.body = ''
}

function sendPage(ctx: RequestContext, html: string, status = 200): void {
  ctx.status = status
  ctx.res.setHeader('Content-Type', 'text/html; charset=utf-8')
  ctx.res.setHeader('Content-Security-Policy', CONSOLE_POLICY)
  harden(ctx)
  ctx.body = html
}

function sendAsset(ctx: RequestContext, asset: Asset | undefined): void {
  if (asset === undefined) throw new ServiceError('not_found', 'the console has no such file')
  const encoding = ctx.acceptsEncodings('br', 'gzip', 'identity')
  ctx.res.setHeader('Content-Type', asset.contentType)
  ctx.res.setHeader('Cache-Control', FOR_EVER)
  ctx.res.setHeader('Vary', 'Accept-Encoding')
  harden(ctx)
  if (encoding === 'br' || encoding === 'gzip') {
    ctx.res.setHeader('Content-Encoding', encoding)
    ctx.body = asset.encoded[encoding]
  } else {
    ctx.body = asset.bytes
  }
}

function harden({ res }: RequestContext): void {
  res.setHeader('X-Content-Type-Options', 'nosniff')
  // A link that logs in stands in the address: nobody else learns it.
  res.setHeader('Referrer-Policy', 'same-origin')
  res.setHeader('Cross-Origin-Opener-Policy', 'same-origin')
  res.setHeader('Cross-Origin-Resource-Policy', 'same-origin')
}
