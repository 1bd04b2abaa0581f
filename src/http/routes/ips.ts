/**
 * The routes of dedicated IPs and their warmup (http/README.md "IPs"). Every change leaves a log line that says who
 * asked for it; the audit of the IP names the key, or the administrator.
 */
import type { Logger } from '../../base/logger.ts'
import type { IpView } from '../../egress/ips/ip-view.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { auditName } from '../exchange/principal.ts'
import {
  forecastSchema as forecastQuerySchema,
  ipStatisticsSchema as statisticsQuerySchema,
  listIpsSchema,
  pauseWarmupSchema,
  startWarmupSchema,
  toForecastQuery,
  toIpPage,
  toStatisticsRange,
  toWarmupStart,
} from '../requests/ip.ts'
import { noFieldsSchema } from '../requests/domain.ts'
import {
  forecastAnswer,
  forecastSchema,
  ipAnswer,
  ipSchema,
  ipStatisticsAnswer,
  ipStatisticsSchema,
  ipWarmupAnswer,
  ipWarmupSchema,
} from '../responses/ip.ts'
import {
  dataSchema,
  listSchema,
  route,
  routeWithoutBody,
  routeWithQuery,
  success,
  successList,
} from '../exchange/route.ts'
import type { ApiRequest, Route } from '../exchange/route.ts'

const OK = 200

export function ipRoutes({ warmup, now }: Pick<HttpFeatures, 'warmup' | 'now'>, logger: Logger): Route[] {
  return [...readingRoutes(warmup, now), ...movingRoutes(warmup, logger)]
}

function readingRoutes(warmup: HttpFeatures['warmup'], now: () => number): Route[] {
  return [
    routeWithQuery({
      method: 'GET',
      path: '/ips',
      summary: 'Lists all dedicated IPs.',
      scope: 'stats',
      query: listIpsSchema,
      ok: { status: OK, schema: listSchema(ipSchema) },
      errors: [],
      async handler(_request, parameters) {
        const { limit, after } = toIpPage(parameters)
        const all = await warmup.list()
        const begin = all.findIndex(({ ip }) => ip === after) + 1
        const page = all.slice(begin, begin + limit)
        const hasMore = begin + limit < all.length
        return successList(page.map(ipAnswer), hasMore ? (page.at(-1)?.ip ?? null) : null)
      },
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/ips/:ip',
      summary: 'One dedicated IP with its warmup.',
      scope: 'stats',
      body: null,
      ok: { status: OK, schema: dataSchema(ipSchema) },
      errors: ['not_found'],
      handler: async (request) => success(OK, ipAnswer(await warmup.find(ipInPath(request)))),
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/ips/:ip/warmup',
      summary: 'How far the warmup of an IP is.',
      scope: 'stats',
      body: null,
      ok: { status: OK, schema: dataSchema(ipWarmupSchema) },
      errors: ['not_found'],
      handler: async (request) => success(OK, ipWarmupAnswer(await warmup.find(ipInPath(request)))),
    }),
    routeWithQuery({
      method: 'GET',
      path: '/ips/:ip/stats',
      summary: 'What an IP sent, and what became of it.',
      scope: 'stats',
      query: statisticsQuerySchema,
      ok: { status: OK, schema: dataSchema(ipStatisticsSchema) },
      errors: ['not_found'],
      async handler(request, parameters) {
        const range = toStatisticsRange(parameters, now())
        return success(OK, ipStatisticsAnswer(await warmup.statistics(ipInPath(request), range)))
      },
    }),
    routeWithQuery({
      method: 'GET',
      path: '/ips/:ip/warmup/forecast',
      summary: 'When a campaign would have left the IP.',
      scope: 'stats',
      query: forecastQuerySchema,
      ok: { status: OK, schema: dataSchema(forecastSchema) },
      errors: ['not_found'],
      async handler(request, parameters) {
        return success(OK, forecastAnswer(await warmup.forecast(ipInPath(request), toForecastQuery(parameters))))
      },
    }),
  ]
}

function movingRoutes(warmup: HttpFeatures['warmup'], logger: Logger): Route[] {
  const moved = (what: string, request: ApiRequest, view: IpView) => {
    const facts = { ip: view.ip, status: view.status, request_id: request.requestId, api_key: request.principal.label }
    logger.info(facts, what)
    return success(OK, ipWarmupAnswer(view))
  }
  const facts = {
    method: 'POST' as const,
    scope: 'ips' as const,
    ok: { status: OK, schema: dataSchema(ipWarmupSchema) },
    errors: ['not_found' as const, 'conflict' as const],
  }
  return [
    route({
      ...facts,
      path: '/ips/:ip/warmup',
      summary: 'Starts the warmup of an IP.',
      body: startWarmupSchema,
      async handler(request, fields) {
        const asked = toWarmupStart(fields)
        const view = await warmup.start(ipInPath(request), asked, auditName(request.principal))
        return moved('warmup started', request, view)
      },
    }),
    route({
      ...facts,
      path: '/ips/:ip/warmup/pause',
      summary: 'Stops first attempts from an IP until it is resumed.',
      body: pauseWarmupSchema,
      async handler(request, { reason }) {
        const view = await warmup.pause(ipInPath(request), reason ?? null, auditName(request.principal))
        return moved('warmup paused', request, view)
      },
    }),
    route({
      ...facts,
      path: '/ips/:ip/warmup/resume',
      summary: 'Goes on with a paused warmup.',
      body: noFieldsSchema,
      async handler(request) {
        return moved('warmup resumed', request, await warmup.resume(ipInPath(request), auditName(request.principal)))
      },
    }),
    route({
      ...facts,
      path: '/ips/:ip/warmup/complete',
      summary: 'Makes an IP warmed now.',
      body: noFieldsSchema,
      async handler(request) {
        const view = await warmup.complete(ipInPath(request), auditName(request.principal))
        return moved('warmup completed', request, view)
      },
    }),
  ]
}

function ipInPath({ params }: ApiRequest): string {
  return params['ip'] ?? ''
}
