/**
 * The routes of dedicated IPs and their warmup (http/README.md "IPs"), and what administrators ask of an IP. The audit
 * of the IP names the key that asked, or the administrator.
 */
import type { z } from 'zod'
import * as wire from '../../api/ip.ts'
import { snakeFields, type CamelFields } from '../../api/names.ts'
import { DAY, SECOND, toUnixSeconds, secondsOrNull } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { StatisticsRange, StatisticsView } from '../../egress/ips/ip-statistics.ts'
import type { IpView, WarmupView } from '../../egress/ips/ip-view.ts'
import type { ForecastView } from '../../egress/moves/warmup-forecast.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import type { Administration } from '../exchange/operator-features.ts'
import { auditName } from '../exchange/principal.ts'
import { okData, okList, success, successList } from '../exchange/answer.ts'
import { param, routesOf, type ApiRequest, type Note, type Route } from '../exchange/route.ts'

const { get } = routesOf('stats')
const admin = routesOf('admin')
const { post } = routesOf('ips')

export function ipRoutes({ warmup, now }: Pick<HttpFeatures, 'warmup' | 'now'>, note: Note): Route[] {
  return [...readingRoutes(warmup, now), ...movingRoutes(warmup, note)]
}

function readingRoutes(warmup: HttpFeatures['warmup'], now: () => number): Route[] {
  return [
    get('/ips', {
      summary: 'Lists all dedicated IPs.',
      query: wire.listIpsSchema,
      ok: okList(wire.ipSchema),
      async handler(_request, { limit, after }) {
        const all = await warmup.list()
        const begin = all.findIndex(({ ip }) => ip === after) + 1
        if (after !== null && begin === 0) {
          throw new ServiceError('invalid_request', 'after: is not a cursor of this list')
        }
        const page = all.slice(begin, begin + limit)
        const hasMore = begin + limit < all.length
        return successList(page.map(ipAnswer), hasMore ? (page.at(-1)?.ip ?? null) : null)
      },
    }),
    get('/ips/:ip', {
      summary: 'One dedicated IP with its warmup.',
      ok: okData(wire.ipSchema),
      handler: async (request) => success(ipAnswer(await warmup.find(param(request, 'ip')))),
    }),
    get('/ips/:ip/warmup', {
      summary: 'How far the warmup of an IP is.',
      ok: okData(wire.ipWarmupSchema),
      handler: async (request) => success(ipWarmupAnswer(await warmup.find(param(request, 'ip')))),
    }),
    get('/ips/:ip/stats', {
      summary: 'What an IP sent, and what became of it.',
      query: wire.ipStatisticsQuerySchema,
      ok: okData(wire.ipStatisticsSchema),
      async handler(request, parameters) {
        const range = statisticsRange(parameters, now())
        return success(statisticsAnswer(await warmup.statistics(param(request, 'ip'), range)))
      },
    }),
    get('/ips/:ip/warmup/forecast', {
      summary: 'When a campaign would have left the IP.',
      query: wire.forecastQuerySchema,
      ok: okData(wire.forecastSchema),
      async handler(request, parameters) {
        return success(forecastAnswer(await warmup.forecast(param(request, 'ip'), forecastQuery(parameters))))
      },
    }),
  ]
}

function movingRoutes(warmup: HttpFeatures['warmup'], note: Note): Route[] {
  const moved = async (what: string, request: ApiRequest, moving: Promise<IpView>) => {
    const view = await moving
    note(what, request, { ip: view.ip, status: view.status })
    return success(ipWarmupAnswer(view))
  }
  const facts = { ok: okData(wire.ipWarmupSchema), errors: ['conflict'] } satisfies Partial<Route>
  return [
    post('/ips/:ip/warmup', {
      ...facts,
      summary: 'Starts the warmup of an IP.',
      body: wire.startWarmupSchema,
      handler(request, { restart, force, ...fields }) {
        const asked = { ...fields, restart: restart ?? false, force: force ?? false }
        const moving = warmup.start(param(request, 'ip'), asked, auditName(request.principal))
        return moved('warmup started', request, moving)
      },
    }),
    post('/ips/:ip/warmup/pause', {
      ...facts,
      summary: 'Stops first attempts from an IP until it is resumed.',
      body: wire.pauseWarmupSchema,
      handler: (request, { reason }) =>
        moved('warmup paused', request, warmup.pause(param(request, 'ip'), reason, auditName(request.principal))),
    }),
    post('/ips/:ip/warmup/resume', {
      ...facts,
      summary: 'Goes on with a paused warmup.',
      handler: (request) =>
        moved('warmup resumed', request, warmup.resume(param(request, 'ip'), auditName(request.principal))),
    }),
    post('/ips/:ip/warmup/complete', {
      ...facts,
      summary: 'Makes an IP warmed now.',
      handler: (request) =>
        moved('warmup completed', request, warmup.complete(param(request, 'ip'), auditName(request.principal))),
    }),
  ]
}

export function ipAdministrationRoutes(administration: Administration, note: Note): Route[] {
  return [
    admin.post('/admin/ips/:ip/suspend', {
      summary: 'Nothing leaves from the IP, or from it to one provider, until it is resumed.',
      body: wire.suspendIpSchema,
      ok: okData(wire.ipSchema),
      errors: ['conflict'],
      async handler(request, { provider, reason }) {
        const actor = auditName(request.principal)
        const view = await administration.suspendIp(param(request, 'ip'), { provider, reason }, actor)
        note('IP suspended', request, { ip: view.ip, status: view.status, provider })
        return success(ipAnswer(view))
      },
    }),
    admin.post('/admin/ips/:ip/resume', {
      summary: 'Ends the suspension of an IP, and lifts what holds its paths back: all, or those to one provider.',
      body: wire.resumeIpSchema,
      ok: okData(wire.ipSchema),
      errors: ['conflict'],
      async handler(request, { provider }) {
        const view = await administration.resumeIp(param(request, 'ip'), provider, auditName(request.principal))
        note('IP resumed', request, { ip: view.ip, status: view.status, provider })
        return success(ipAnswer(view))
      },
    }),
    admin.get('/admin/ips/:ip/audit', {
      summary: 'What happened to the warmup of an IP, newest first.',
      query: wire.ipAuditSchema,
      ok: okList(wire.ipNoteSchema),
      async handler(request, { limit }) {
        const notes = await administration.audit(param(request, 'ip'), limit)
        return successList(notes.map(ipNoteAnswer))
      },
    }),
    admin.get('/admin/ips/:ip/days', {
      summary: 'What the warmup of an IP allowed and will allow, and what it sent, by UTC day.',
      query: wire.sendDaysSchema,
      ok: okList(wire.sendDaySchema),
      async handler(request, { past, ahead }) {
        return successList(await administration.sendDays(param(request, 'ip'), past, ahead))
      },
    }),
  ]
}

const WINDOWS = { '24h': DAY, '7d': 7 * DAY, '30d': 30 * DAY }

/** `window` ends now; `from` and `to` say the range themselves. */
function statisticsRange(
  { window, from, to, interval }: CamelFields<z.infer<typeof wire.ipStatisticsQuerySchema>>,
  now: number,
): StatisticsRange {
  if (window !== null && (from !== null || to !== null)) {
    throw new ServiceError('invalid_request', 'window: give either window, or from and to')
  }
  const end = to === null ? now : to * SECOND
  const start = from === null ? end - WINDOWS[window ?? '7d'] : from * SECOND
  if (start >= end) throw new ServiceError('invalid_request', 'from: must be before to')
  return { from: start, to: end, interval: interval ?? (end - start <= DAY ? 'hour' : 'day') }
}

function forecastQuery({ recipients: text, isp, startAt }: CamelFields<z.infer<typeof wire.forecastQuerySchema>>) {
  const recipients = Number(text)
  if (recipients < 1 || recipients > wire.MOST_FORECAST_RECIPIENTS) {
    throw new ServiceError('invalid_request', `recipients: must be from 1 to ${wire.MOST_FORECAST_RECIPIENTS}`)
  }
  return { recipients, isp, startAt: startAt === null ? null : startAt * SECOND }
}

function ipAnswer({ ip, pool, hostname, status, weight, reason, ptr, ...view }: IpView): wire.IpJson {
  return {
    ip,
    pool,
    hostname,
    status,
    enabled: view.isEnabled,
    bindable: view.isBindable,
    weight,
    reason,
    changed_by: view.actor,
    changed_at: toUnixSeconds(view.since),
    until: secondsOrNull(view.until),
    ptr: { status: ptr.status, value: ptr.value, checked_at: secondsOrNull(ptr.checkedAt) },
    blocklists: view.blocklists.map(({ zone, isListed: listed, checkedAt }) => ({
      zone,
      listed,
      checked_at: secondsOrNull(checkedAt),
    })),
    warmup: warmupAnswer(view.warmup),
  }
}

function ipWarmupAnswer({ ip, status, warmup }: IpView): wire.IpWarmupJson {
  return { ip, status, warmup: warmupAnswer(warmup) }
}

function warmupAnswer(warmup: WarmupView | null): wire.WarmupJson | null {
  if (warmup === null) return null
  const { startedAt, resetsAt, estimatedCompletion, pausedUntil, providers } = warmup
  return {
    ...snakeFields(warmup),
    started_at: toUnixSeconds(startedAt),
    resets_at: toUnixSeconds(resetsAt),
    estimated_completion: secondsOrNull(estimatedCompletion),
    paused_until: secondsOrNull(pausedUntil),
    providers: Object.fromEntries(Object.entries(providers).map(([isp, counts]) => [isp, snakeFields(counts)])),
  }
}

function statisticsAnswer({ from, to, totals, byProvider, series, ...view }: StatisticsView): wire.IpStatisticsJson {
  return {
    ...view,
    from: toUnixSeconds(from),
    to: toUnixSeconds(to),
    totals: snakeFields(totals),
    by_provider: byProvider.map(({ p95Delivery, ...provider }) => ({ ...provider, p95_delivery_ms: p95Delivery })),
    series: series.map(({ at, ...counts }) => ({ t: toUnixSeconds(at), ...counts })),
  }
}

function forecastAnswer(view: ForecastView): wire.WarmupForecastJson {
  return {
    ...snakeFields(view),
    start_at: toUnixSeconds(view.startAt),
    finish_at: secondsOrNull(view.finishAt),
    days: view.days.map(({ boundBy: limit, ...day }) => ({ ...snakeFields(day), limit })),
  }
}

type IpNote = Awaited<ReturnType<Administration['audit']>>[number]

/** The note without its IP, which the path names. */
function ipNoteAnswer({ ip: _ip, ...note }: IpNote): wire.IpNoteJson {
  return { ...snakeFields(note), at: toUnixSeconds(note.at) }
}
