/**
 * The routes of administrators: reload, queue, paths, pools, suspension of IPs (config/README.md "Reload",
 * commands/README.md "The command line"). For the command line of the same version: they stand in no contract, and not
 * in openapi.json.
 *
 * They act on the mail of everybody: a test key, or one that is limited to some sending domains, may not use them,
 * whatever its scopes. Every change leaves a log line that says who asked for it.
 */
import { ServiceError } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { auditName } from '../exchange/principal.ts'
import type { Principal } from '../exchange/principal.ts'
import {
  auditSchema,
  pathFilterSchema,
  queueActionSchema,
  queueGroupsSchema,
  reloadSchema,
  resumeIpSchema,
  resumePathsSchema,
  sendDaysSchema,
  suspendIpSchema,
  toAuditLimit,
  toDays,
  toGroupsFilter,
  toPathFilter,
  toQueueAction,
  toQueueFilter,
} from '../requests/administration.ts'
import {
  domainRouteAnswer,
  domainRouteSchema,
  ipNoteAnswer,
  ipNoteSchema,
  pathAnswer,
  pathSchema,
  poolAnswer,
  poolSchema,
  queueActionResultSchema,
  queueGroupAnswer,
  queueGroupSchema,
  reloadAnswer,
  reloadResultSchema,
  resumedPathsSchema,
  sendDaySchema,
} from '../responses/administration.ts'
import { ipAnswer, ipSchema } from '../responses/ip.ts'
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
import { checkRoutes } from './checks.ts'
import { dataRoutes } from './data.ts'
import { serverStateRoutes } from './server-state.ts'

const OK = 200

type Administration = HttpFeatures['administration']
/** Writes who did what. */
type Note = (what: string, request: ApiRequest, facts: object) => void

export function administrationRoutes(features: Pick<HttpFeatures, 'administration'>, logger: Logger): Route[] {
  const { administration } = features
  const note: Note = (what, { requestId, principal }, facts) =>
    logger.info({ ...facts, request_id: requestId, api_key: principal.label }, what)
  const routes = [
    ...serverRoutes(administration, note),
    ...queueRoutes(administration, note),
    ...pathRoutes(administration, note),
    ...ipRoutes(administration, note),
    ...checkRoutes(administration),
    ...dataRoutes(administration, note),
    ...serverStateRoutes(administration),
  ]
  return routes.map(forAdministrators)
}

function forAdministrators(open: Route): Route {
  return {
    ...open,
    isInternal: true,
    async handle(request, document) {
      requireWholeServer(request.principal)
      return open.handle(request, document)
    },
  }
}

function requireWholeServer({ mode, domains }: Principal): void {
  if (mode === 'live' && domains.length === 0) return
  throw new ServiceError('forbidden', 'a test key, or a key for some sending domains, does not administer the server')
}

function serverRoutes(administration: Administration, note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/admin/reload',
      summary: 'Takes the configuration files over, or says what would change.',
      scope: 'admin',
      body: reloadSchema,
      ok: { status: OK, schema: dataSchema(reloadResultSchema) },
      errors: [],
      async handler(request, { dry_run: isDryRun }) {
        const result = await administration.reload(isDryRun ?? false)
        const { isApplied, revision, lines } = result
        if (isApplied) note('configuration reloaded', request, { revision, changes: lines })
        return success(OK, reloadAnswer(result))
      },
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/admin/pools',
      summary: 'Lists the pools with their IPs.',
      scope: 'admin',
      body: null,
      ok: { status: OK, schema: listSchema(poolSchema) },
      errors: [],
      handler: async () => successList(administration.pools().map(poolAnswer), null),
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/admin/domains/:domain/route',
      summary: 'Where the mail of a recipient domain goes: hosts, provider, limits, TLS.',
      scope: 'admin',
      body: null,
      ok: { status: OK, schema: dataSchema(domainRouteSchema) },
      errors: [],
      handler: async ({ params }) =>
        success(OK, domainRouteAnswer(await administration.routeOf(params['domain'] ?? ''))),
    }),
  ]
}

function queueRoutes(administration: Administration, note: Note): Route[] {
  return [
    routeWithQuery({
      method: 'GET',
      path: '/admin/queue',
      summary: 'What waits, in groups, largest first.',
      scope: 'admin',
      query: queueGroupsSchema,
      ok: { status: OK, schema: listSchema(queueGroupSchema) },
      errors: [],
      async handler(_request, { by, ...given }) {
        const grouping = by === 'provider' || by == null ? 'isp' : by
        const groups = await administration.queueGroups(grouping, toGroupsFilter(given))
        return successList(groups.map(queueGroupAnswer), null)
      },
    }),
    route({
      method: 'POST',
      path: '/admin/queue/actions',
      summary: 'Retries, holds, releases, drops or moves what waits and fits the filter; a dry run counts it.',
      scope: 'admin',
      body: queueActionSchema,
      ok: { status: OK, schema: dataSchema(queueActionResultSchema) },
      errors: [],
      async handler(request, fields) {
        const action = toQueueAction(fields)
        const filter = toQueueFilter(fields.filter ?? {})
        const isDryRun = fields.dry_run ?? false
        const messages = await administration.actOnQueue(action, filter, isDryRun)
        if (!isDryRun) note('queue changed', request, { action, filter, messages })
        return success(OK, { action: action.kind, messages, dry_run: isDryRun })
      },
    }),
  ]
}

function pathRoutes(administration: Administration, note: Note): Route[] {
  return [
    routeWithQuery({
      method: 'GET',
      path: '/admin/paths',
      summary: 'Paths that are limited, wait or are suspended, with cause and end.',
      scope: 'admin',
      query: pathFilterSchema,
      ok: { status: OK, schema: listSchema(pathSchema) },
      errors: [],
      async handler(_request, filter) {
        return successList(administration.paths(toPathFilter(filter)).map(pathAnswer), null)
      },
    }),
    route({
      method: 'POST',
      path: '/admin/paths/resume',
      summary: 'Lifts what holds the paths of the filter back; a dry run counts them.',
      scope: 'admin',
      body: resumePathsSchema,
      ok: { status: OK, schema: dataSchema(resumedPathsSchema) },
      errors: [],
      async handler(request, { dry_run: asked, ...given }) {
        const filter = toPathFilter(given)
        const isDryRun = asked ?? false
        const paths = await administration.resumePaths(filter, isDryRun, auditName(request.principal))
        if (!isDryRun) note('paths resumed', request, { filter, paths })
        return success(OK, { paths, dry_run: isDryRun })
      },
    }),
  ]
}

function ipRoutes(administration: Administration, note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/admin/ips/:ip/suspend',
      summary: 'Nothing leaves from the IP, or from it to one provider, until it is resumed.',
      scope: 'admin',
      body: suspendIpSchema,
      ok: { status: OK, schema: dataSchema(ipSchema) },
      errors: ['not_found', 'conflict'],
      async handler(request, fields) {
        const [provider, reason] = [fields.provider ?? null, fields.reason ?? null]
        const actor = auditName(request.principal)
        const view = await administration.suspendIp(ipInPath(request), { provider, reason }, actor)
        note('IP suspended', request, { ip: view.ip, status: view.status, provider })
        return success(OK, ipAnswer(view))
      },
    }),
    route({
      method: 'POST',
      path: '/admin/ips/:ip/resume',
      summary: 'Ends the suspension of an IP, and lifts what holds its paths back: all, or those to one provider.',
      scope: 'admin',
      body: resumeIpSchema,
      ok: { status: OK, schema: dataSchema(ipSchema) },
      errors: ['not_found', 'conflict'],
      async handler(request, fields) {
        const provider = fields.provider ?? null
        const view = await administration.resumeIp(ipInPath(request), provider, auditName(request.principal))
        note('IP resumed', request, { ip: view.ip, status: view.status, provider })
        return success(OK, ipAnswer(view))
      },
    }),
    routeWithQuery({
      method: 'GET',
      path: '/admin/ips/:ip/audit',
      summary: 'What happened to the warmup of an IP, newest first.',
      scope: 'admin',
      query: auditSchema,
      ok: { status: OK, schema: listSchema(ipNoteSchema) },
      errors: ['not_found'],
      async handler(request, parameters) {
        const notes = await administration.audit(ipInPath(request), toAuditLimit(parameters))
        return successList(notes.map(ipNoteAnswer), null)
      },
    }),
    routeWithQuery({
      method: 'GET',
      path: '/admin/ips/:ip/days',
      summary: 'What the warmup of an IP allowed and will allow, and what it sent, by UTC day.',
      scope: 'admin',
      query: sendDaysSchema,
      ok: { status: OK, schema: listSchema(sendDaySchema) },
      errors: ['not_found'],
      async handler(request, parameters) {
        const { past, ahead } = toDays(parameters)
        return successList(await administration.sendDays(ipInPath(request), past, ahead), null)
      },
    }),
  ]
}

function ipInPath({ params }: ApiRequest): string {
  return params['ip'] ?? ''
}
