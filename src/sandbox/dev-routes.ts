/**
 * All `/dev` paths as one Koa middleware; every other path goes on to the API. No key is needed on loopback; a request
 * of another origin is refused (sandbox/README.md "Routes under /dev"). Mistakes are ServiceErrors, answered by the
 * layer outside.
 */
import type { Context, Middleware } from 'koa'
import { DAY, SECOND, toUnixSeconds } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import type { CaptureReplies } from '../capture/replies.ts'
import { readDuration } from '../config/settings/field-types.ts'
import type { AdjustableClock } from './adjustable-clock.ts'
import { notFound, readJsonObject, refusal, sendData, type DevHandler, type DevRoutes } from './dev-route.ts'
import { hookRoutes } from './hook-routes.ts'
import { inboxRoutes } from './inbox-routes.ts'
import type { Inbox } from './inbox.ts'
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

export function createDevRoutes(options: DevRoutesOptions): Middleware {
  const { inbox, inspector, clock, onClockChange, replies } = options
  const own = new URL(options.baseUrl)
  const routes = tableOf({
    'GET /dev': (context) => context.redirect('/console/inbox'),
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
  const origins = [own.origin, own.origin.replace(own.hostname, 'localhost')]
  const asked = `${own.protocol}//${headers.host}`
  const isOwnPage = headers.origin === undefined || headers.origin === asked
  const isOwnName = origins.includes(asked)
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

const LONGEST_JUMP = 400 * DAY
const FIELDS = ['speed', 'advance']

/** `/dev/clock`: application time, which runs faster or jumps ahead. `onChange` is told after every change. */
function clockRoutes(clock: AdjustableClock, onChange: () => void): DevRoutes {
  const show = (context: Context): void => sendData(context, clockView(clock))
  return {
    'GET /dev/clock': (context) => show(context),
    'POST /dev/clock': async (context) => {
      const { speed, advance } = readChange(await readJsonObject(context))
      // A speed that is refused leaves everything as it was.
      if (speed !== null) clock.setSpeed(speed)
      if (advance !== null) clock.advance(advance)
      onChange()
      show(context)
    },
  }
}

function clockView(clock: AdjustableClock): Record<string, unknown> {
  const now = clock.now()
  return {
    time: toUnixSeconds(now),
    iso: new Date(now).toISOString(),
    speed: clock.speed(),
    ahead_seconds: Math.floor(clock.ahead() / SECOND),
  }
}

function readChange(given: Record<string, unknown>): { speed: number | null; advance: number | null } {
  const unknown = Object.keys(given).find((name) => !FIELDS.includes(name))
  if (unknown !== undefined) {
    throw refusal(`the body has no field ${JSON.stringify(unknown)}; there are speed and advance`)
  }
  const speed = 'speed' in given ? readSpeed(given['speed']) : null
  const advance = 'advance' in given ? readJump(given['advance']) : null
  if (speed === null && advance === null) throw refusal('the body needs speed or advance')
  return { speed, advance }
}

function readSpeed(value: unknown): number {
  if (typeof value === 'number') return value
  throw refusal('speed: must be a number')
}

function readJump(value: unknown): number {
  // A duration with a minus in front.
  if (typeof value === 'string' && /^-\d/.test(value)) {
    throw new ServiceError('conflict', 'advance: time never goes backwards')
  }
  const reading = readDuration(value, { min: 0, max: LONGEST_JUMP })
  if (reading.ok) return reading.value
  throw refusal(`advance: ${reading.problem}`)
}
