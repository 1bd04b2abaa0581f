/**
 * The routes of sending domains (http/README.md "Domains").
 *
 * A key that is limited to some domains gets 403 for every other one, whether it exists or not, and lists its own
 * alone. Every change leaves a log line that says who asked for it.
 */
import { z } from 'zod'
import { ServiceError } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import { readDomainName } from '../../senders/domain-name.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { listOwnDomains } from './list-own-domains.ts'
import { mayUseDomain } from '../exchange/principal.ts'
import type { Principal } from '../exchange/principal.ts'
import {
  addDomainSchema,
  listDomainsSchema,
  noFieldsSchema,
  removeDomainSchema,
  toAddDomainRequest,
  toListDomainsQuery,
  toUpdateDomainRequest,
  updateDomainSchema,
} from '../requests/domain.ts'
import { domainSchema, removedDomainSchema } from '../responses/domain.ts'
import {
  dataSchema,
  listSchema,
  route,
  routeWithoutBody,
  routeWithQuery,
  success,
  successList,
} from '../exchange/route.ts'
import type { ApiRequest, OkAnswer, Route } from '../exchange/route.ts'

const CREATED = 201
const OK = 200
const OK_DOMAIN: OkAnswer = { status: OK, schema: dataSchema(domainSchema) }

export function domainRoutes({ domains }: HttpFeatures, logger: Logger): Route[] {
  const note = makeNote(logger)
  return [...collectionRoutes(domains, note), ...domainOwnRoutes(domains, note), ...actionRoutes(domains, note)]
}

/** Writes who did what to which domain. */
type Note = (what: string, request: ApiRequest, facts: { domain: string; messages?: number; purge?: boolean }) => void

function makeNote(logger: Logger): Note {
  return (what, { requestId, principal }, facts) =>
    logger.info({ ...facts, request_id: requestId, api_key: principal.label }, what)
}

/** /domains */
function collectionRoutes(domains: HttpFeatures['domains'], note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/domains',
      summary: 'Adds a sending domain and says which DNS records to publish.',
      scope: 'domains',
      body: addDomainSchema,
      ok: { status: CREATED, otherStatus: OK, schema: dataSchema(domainSchema) },
      errors: ['conflict'],
      idempotency: 'after-answer',
      async handler(request, fields) {
        const given = toAddDomainRequest(fields)
        const reading = readDomainName(given.name)
        if (reading.ok) requireDomain(request.principal, reading.name)
        const { record, isNew } = await domains.add(given)
        if (isNew) note('domain added', request, { domain: record.domain })
        return success(isNew ? CREATED : OK, record)
      },
    }),
    routeWithQuery({
      method: 'GET',
      path: '/domains',
      summary: 'Lists the verified domains, or those of another state.',
      scope: 'domains',
      query: listDomainsSchema,
      ok: { status: OK, schema: listSchema(domainSchema) },
      errors: [],
      async handler({ principal }, parameters) {
        const query = toListDomainsQuery(parameters)
        const page =
          principal.domains.length === 0
            ? await domains.list(query)
            : await listOwnDomains(principal.domains, query, domains.find)
        return successList(page.domains, page.next)
      },
    }),
  ]
}

/** /domains/{domain} */
function domainOwnRoutes(domains: HttpFeatures['domains'], note: Note): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/domains/:domain',
      summary: 'One sending domain with its DNS records.',
      scope: 'domains',
      body: null,
      ok: OK_DOMAIN,
      errors: ['not_found'],
      async handler(request) {
        const name = domainInPath(request)
        const domain = await domains.find(name)
        if (domain === null) throw unknownDomain(name)
        return success(OK, domain)
      },
    }),
    route({
      method: 'PATCH',
      path: '/domains/:domain',
      summary: 'Changes tracking, IP pool or the use of subdomains.',
      scope: 'domains',
      body: updateDomainSchema,
      ok: OK_DOMAIN,
      errors: ['not_found'],
      async handler(request, fields) {
        const record = await domains.update(domainInPath(request), toUpdateDomainRequest(fields))
        note('domain changed', request, { domain: record.domain })
        return success(OK, record)
      },
    }),
    routeWithQuery({
      method: 'DELETE',
      path: '/domains/:domain',
      summary: 'Removes a sending domain.',
      scope: 'domains',
      query: removeDomainSchema,
      ok: { status: OK, schema: dataSchema(removedDomainSchema) },
      errors: ['not_found'],
      async handler(request, parameters) {
        const name = domainInPath(request)
        if (parameters.dry_run === 'true') return success(OK, await keptDomain(name, domains))
        const purge = parameters.purge === 'true'
        const removed = await domains.remove(name, { purge })
        note('domain removed', request, { domain: removed.domain, messages: removed.queued_messages, purge })
        return success(OK, removed)
      },
    }),
  ]
}

/** What `remove` would answer now. */
async function keptDomain(name: string, domains: HttpFeatures['domains']): Promise<object> {
  return { domain: name, deleted: false, queued_messages: await domains.queuedMessages(name) }
}

/** What is done with one domain. */
function actionRoutes(domains: HttpFeatures['domains'], note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/domains/:domain/verify',
      summary: 'Checks the DNS records of a domain now.',
      scope: 'domains',
      body: noFieldsSchema,
      ok: OK_DOMAIN,
      errors: ['not_found'],
      async handler(request) {
        const { record, isRepeated } = await domains.verify(domainInPath(request))
        if (isRepeated) request.warn('verify: result of the call less than 10 s ago')
        return success(OK, record)
      },
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/domains/:domain/zonefile',
      summary: 'The DNS records as a snippet of a zone file.',
      scope: 'domains',
      body: null,
      ok: { status: OK, schema: z.string(), contentType: 'text/plain' },
      errors: ['not_found'],
      handler: async (request) => ({ status: OK, body: await domains.zoneFile(domainInPath(request)) }),
    }),
    route({
      method: 'POST',
      path: '/domains/:domain/dkim/rotate',
      summary: 'Makes the DKIM key that takes over once its record is published.',
      scope: 'domains',
      body: noFieldsSchema,
      ok: OK_DOMAIN,
      errors: ['not_found', 'conflict'],
      async handler(request) {
        const record = await domains.rotateDkim(domainInPath(request))
        note('DKIM rotation begun', request, { domain: record.domain })
        return success(OK, record)
      },
    }),
  ]
}

/** Lower-case A-labels of the domain in the path (http/README.md "Conventions"). */
function domainInPath({ params, principal }: ApiRequest): string {
  const given = params['domain'] ?? ''
  const reading = readDomainName(given)
  requireDomain(principal, reading.ok ? reading.name : given)
  if (!reading.ok) throw unknownDomain(given)
  return reading.name
}

function requireDomain(principal: Principal, name: string): void {
  if (!mayUseDomain(principal, name)) throw new ServiceError('forbidden', `the key is not for the domain ${name}`)
}

function unknownDomain(name: string): ServiceError {
  return new ServiceError('not_found', `domain ${name}`)
}
