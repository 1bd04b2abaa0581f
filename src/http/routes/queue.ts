/** For administrators: the queue as a whole, paths, pools, and where the mail of a domain goes. */
import type { z } from 'zod'
import { camelFields, snakeFields, withoutNulls, type CamelFields } from '../../api/names.ts'
import * as wire from '../../api/queue.ts'
import { SECOND, toUnixSeconds, secondsOrNull } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { canonicalIp } from '../../base/ip-address.ts'
import { durationText, rateText } from '../../config/settings/field-types.ts'
import type { PathFilter, PathHold, PathView } from '../../egress/shaping/shaping.ts'
import type { QueueAction, QueueFilter, QueueGroup } from '../../mail/waiting-mail.ts'
import type { Administration, DomainRoute, PoolState } from '../exchange/operator-features.ts'
import { auditName } from '../exchange/principal.ts'
import { okData, okList, success, successList } from '../exchange/answer.ts'
import { param, routesOf, type Note, type Route } from '../exchange/route.ts'

const { get, post } = routesOf('admin')

const GROUPINGS = {
  provider: 'isp',
  recipient_domain: 'recipientDomain',
  domain: 'domain',
  ip: 'ip',
  pool: 'pool',
} as const

export function queueRoutes(administration: Administration, note: Note): Route[] {
  return [...waitingMailRoutes(administration, note), ...pathRoutes(administration, note)]
}

function waitingMailRoutes(administration: Administration, note: Note): Route[] {
  return [
    get('/admin/queue', {
      summary: 'What waits, in groups, largest first.',
      query: wire.queueGroupsSchema,
      ok: okList(wire.queueGroupSchema),
      async handler(_request, { by, held, ...given }) {
        const filter = queueFilter({ ...given, held: held === null ? null : held === 'true' })
        const groups = await administration.queueGroups(GROUPINGS[by ?? 'provider'], filter)
        return successList(groups.map(queueGroupAnswer))
      },
    }),
    post('/admin/queue/actions', {
      summary: 'Retries, holds, releases, drops or moves what waits and fits the filter; a dry run counts it.',
      body: wire.queueActionSchema,
      ok: okData(wire.queueActionResultSchema),
      async handler(request, { action: kind, toPool, filter: given, dryRun }) {
        const action = queueAction(kind, toPool)
        const filter = queueFilter(camelFields(wire.queueFilterSchema, given ?? {}))
        const isDryRun = dryRun ?? false
        const messages = await administration.actOnQueue(action, filter, isDryRun)
        if (!isDryRun) note('queue changed', request, { action, filter, messages })
        return success({ action: kind, messages, dry_run: isDryRun })
      },
    }),
  ]
}

function pathRoutes(administration: Administration, note: Note): Route[] {
  return [
    get('/admin/paths', {
      summary: 'Paths that are limited, wait or are suspended, with cause and end; of several nodes on the one asked.',
      query: wire.pathFilterSchema,
      ok: okList(wire.pathSchema),
      handler: async (_request, given) => successList(administration.paths(pathFilter(given)).map(pathAnswer)),
    }),
    post('/admin/paths/resume', {
      summary:
        'Lifts what holds the paths of the filter back, of several nodes on the one asked; a dry run counts them.',
      body: wire.resumePathsSchema,
      ok: okData(wire.resumedPathsSchema),
      errors: ['conflict'],
      async handler(request, { dryRun, ...given }) {
        const filter = pathFilter(given)
        const isDryRun = dryRun ?? false
        const { paths, node } = await administration.resumePaths(filter, isDryRun, auditName(request.principal))
        if (!isDryRun) note('paths resumed', request, { filter, paths })
        return success({ paths, dry_run: isDryRun, node })
      },
    }),
    get('/admin/pools', {
      summary: 'Lists the pools with their IPs.',
      ok: okList(wire.poolSchema),
      handler: async () => successList(administration.pools().map(poolAnswer)),
    }),
    get('/admin/domains/:domain/route', {
      summary: 'Where the mail of a recipient domain goes: hosts, provider, limits, TLS.',
      ok: okData(wire.domainRouteSchema),
      handler: async (request) => success(domainRouteAnswer(await administration.routeOf(param(request, 'domain')))),
    }),
  ]
}

/** An address of IPv6 may be written in several ways: held is one of them. */
const ipIn = (given: string | null): string | null => given && (canonicalIp(given) ?? given)

function pathFilter(given: { [Name in keyof PathFilter]: string | null } & { ip: string | null }): PathFilter {
  return withoutNulls({ ...given, ip: ipIn(given.ip) })
}

/** What is null does not restrict. */
function queueFilter(given: CamelFields<z.infer<typeof wire.queueFilterSchema>>): QueueFilter {
  const { provider: isp, held: isHeld, recipientDomain, domain, acceptedBefore, ...same } = given
  return withoutNulls({
    ...same,
    ip: ipIn(same.ip),
    isp,
    isHeld,
    recipientDomain: recipientDomain?.toLowerCase() ?? null,
    domain: domain?.toLowerCase() ?? null,
    acceptedBefore: acceptedBefore === null ? null : acceptedBefore * SECOND,
  })
}

function queueAction(kind: QueueAction['kind'], pool: string | null): QueueAction {
  if (kind !== 'move') {
    if (pool !== null) throw new ServiceError('invalid_request', 'to_pool: only move takes it')
    return { kind }
  }
  if (pool === null) throw new ServiceError('invalid_request', 'to_pool: move needs it')
  return { kind, pool }
}

function queueGroupAnswer(group: QueueGroup): wire.QueueGroupJson {
  return snakeFields({ ...group, oldestAcceptedAt: toUnixSeconds(group.oldestAcceptedAt) })
}

function pathAnswer(view: PathView): wire.PathJson {
  return { ...view, holds: view.holds.map(holdAnswer) }
}

function holdAnswer(held: PathHold): wire.PathHoldJson {
  const { since, until, rate } = held
  return snakeFields({
    ...held,
    since: toUnixSeconds(since),
    until: secondsOrNull(until),
    rate: rate === null ? null : rateText(rate),
  })
}

function poolAnswer({ name, isDefault, settings, ips, waiting }: PoolState): wire.PoolJson {
  const { description, overflow, overflow_pool, max_defer, require_warmup, connections_max, rate } = settings
  return {
    name,
    default: isDefault,
    description,
    overflow,
    overflow_pool,
    max_defer: durationText(max_defer),
    require_warmup,
    connections_max,
    rate: rate === null ? null : rateText(rate),
    waiting,
    ips: ips.map(({ address: ip, source, hostname, weight, state: status, sends, reason, until }) => ({
      ip,
      source,
      hostname,
      weight,
      status,
      sends,
      reason,
      until: secondsOrNull(until),
    })),
  }
}

function domainRouteAnswer({ domain, problem, provider, hosts }: DomainRoute): wire.DomainRouteJson {
  const facts = { domain, problem, hosts }
  if (provider === null) return { ...facts, provider: null, isp: null, route: null, limits: null }
  const { connections, messages_per_connection, in_flight, rate, connection_rate, tls, idle, failures, scope } =
    provider.limits
  return {
    ...facts,
    provider: provider.provider,
    isp: provider.isp,
    route: provider.route,
    limits: {
      connections,
      messages_per_connection,
      in_flight,
      rate: rateText(rate),
      connection_rate: rateText(connection_rate),
      tls,
      idle: durationText(idle),
      failures,
      scope,
    },
  }
}
