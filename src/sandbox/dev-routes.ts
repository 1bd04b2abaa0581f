/**
 * All `/dev` paths as one Koa middleware; every other path goes on to the API. No key is needed on loopback; a request
 * of another origin is refused (sandbox/README.md "Routes under /dev"). Mistakes are ServiceErrors, answered by the
 * layer outside.
 */
import type { Context, Middleware } from 'koa'
import { ServiceError } from '../base/errors.ts'
import type { AdjustableClock } from './adjustable-clock.ts'
import { clockRoutes } from './clock-routes.ts'
import { devPage, PAGE_POLICY } from './dev-page.ts'
import { notFound, type DevHandler, type DevRoutes } from './dev-route.ts'
import { hookRoutes } from './hook-routes.ts'
import type { Inbox } from './inbox.ts'
import { inboxRoutes } from './inbox-routes.ts'
import type { CaptureReplies } from '../capture/replies.ts'
import { replyRoutes } from './reply-routes.ts'
import type { WebhookInspector } from './webhook-inspector.ts'

interface DevRoutesOptions {
  /** The configured one, e.g. `http://127.0.0.1:8025`. */
  baseUrl: string
  inbox: Inbox
  inspector: WebhookInspector
  clock: AdjustableClock
  /** The clock was changed. */
  onClockChange: () => void
  replies: CaptureReplies
}

const ROWS_OF_PAGE = 50
const ANY_MAIL = { to: null, from: null, subject: null, label: null }

export function createDevRoutes(options: DevRoutesOptions): Middleware {
  const { inbox, inspector, clock, onClockChange, replies } = options
  const own = new URL(options.baseUrl)
  const routes = tableOf({
    'GET /dev': (context) => showPage(context, options),
    ...inboxRoutes(inbox),
    ...hookRoutes(inspector),
    ...clockRoutes(clock, onClockChange),
    ...replyRoutes(replies),
  })

  return async function dev(context, next) {
    // A trailing slash is ignored (http/README.md "Conventions").
    const path = context.path.replace(/\/+$/, '')
    if (path !== '/dev' && !path.startsWith('/dev/')) return next()
    refuseStrangers(context, own)
    context.set('Cache-Control', 'no-store')
    const method = context.method === 'HEAD' ? 'GET' : context.method
    const route = findRoute(routes, method, path)
    await route.handle(context, route.path.exec(path)?.groups ?? {})
  }
}

/** A page of another origin, or one whose own name was made to lead here (DNS rebinding), which sends no Origin. */
function refuseStrangers({ headers }: Context, own: URL): void {
  const isOwnPage = headers.origin === undefined || headers.origin === own.origin
  const isOwnName = [own.host, `localhost:${own.port}`].includes(headers.host ?? '')
  if (!isOwnPage || !isOwnName) throw new ServiceError('forbidden', 'a page of another origin may not use /dev')
}

interface TableRow {
  method: string
  path: RegExp
  handle: DevHandler
}

function tableOf(routes: DevRoutes): TableRow[] {
  return Object.entries(routes).map(([key, handle]) => {
    const [method = '', pattern = ''] = key.split(' ')
    // A segment with a colon takes any text.
    return { method, path: new RegExp(`^${pattern.replaceAll(/:(\w+)/g, '(?<$1>[^/]*)')}$`), handle }
  })
}

function findRoute(routes: readonly TableRow[], method: string, path: string): TableRow {
  const candidates = routes.filter((route) => route.path.test(path))
  const found = candidates.find((route) => route.method === method)
  if (found !== undefined) return found
  if (candidates.length === 0) throw notFound(`path ${path}`)
  const allow = candidates.map((route) => route.method).join(', ')
  throw new ServiceError('method_not_allowed', `allowed: ${allow}`, { headers: { Allow: allow } })
}

async function showPage(context: Context, options: DevRoutesOptions): Promise<void> {
  const { baseUrl, inbox, inspector, clock, replies } = options
  const mails = await inbox.find(ANY_MAIL, ROWS_OF_PAGE, 0)
  context.set('Content-Security-Policy', PAGE_POLICY)
  context.set('X-Content-Type-Options', 'nosniff')
  context.status = 200
  context.type = 'text/html; charset=utf-8'
  context.body = devPage({
    baseUrl,
    mails,
    deliveries: inspector.latest(ROWS_OF_PAGE),
    time: { now: clock.now(), speed: clock.speed(), ahead: clock.ahead() },
    rules: replies.rules(),
  })
}
