/**
 * The routes of sending domains (http/README.md "Domains"). A key that is limited to some domains gets 403 for every
 * other one, whether it exists or not, and lists its own alone.
 */
import { z } from 'zod'
import { authenticationQuerySchema, authenticationSchema, MOST_REPORTED_DAYS } from '../../api/authentication.ts'
import * as wire from '../../api/domain.ts'
import { DAY, SECOND, toUnixSeconds } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { utcDay } from '../../base/utc-day.ts'
import { withoutNulls, type CamelFields } from '../../api/names.ts'
import { readDomainName } from '../../senders/domain-name.ts'
import { servedConsole, type HttpFeatures } from '../exchange/features.ts'
import { mayUseDomain, reachesServer, type Principal } from '../exchange/principal.ts'
import { CREATED, OK, okData, okList, success, successList } from '../exchange/answer.ts'
import { param, routesOf, type ApiRequest, type Note, type Route } from '../exchange/route.ts'
import type { AddDomainRequest } from '../../senders/add-domain.ts'
import { unknownDomain } from '../../senders/change-domain.ts'
import type { DomainView } from '../../senders/domain-view.ts'
import type { DomainList, Domains, ListDomainsQuery } from '../../senders/domains.ts'

const { get, post, patch, remove } = routesOf('domains')

const OK_DOMAIN = okData(wire.domainSchema)

export function domainRoutes({ domains, now, consoleUrl }: HttpFeatures, note: Note): Route[] {
  return [
    ...recordRoutes(domains, note),
    ...actionRoutes(domains, note),
    linkRoute(domains, consoleUrl, note),
    authenticationRoute(domains, now),
  ]
}

/** A name may come before its domain is added; one with a slip in it would never come. */
export async function warnOfUnknownDomains(
  { domains }: Pick<HttpFeatures, 'domains'>,
  request: ApiRequest,
  names: readonly string[],
): Promise<void> {
  for (const name of names) {
    if ((await domains.find(name)) === null) request.warn(`${name} is no sending domain of this server`)
  }
}

function recordRoutes(domains: HttpFeatures['domains'], note: Note): Route[] {
  return [
    post('/domains', {
      summary: 'Adds a sending domain and says which DNS records to publish.',
      body: wire.addDomainSchema,
      ok: { ...okData(wire.domainSchema, CREATED), otherStatus: OK },
      errors: ['conflict'],
      idempotency: 'after-answer',
      async handler(request, fields) {
        const given = addDomainRequest(fields)
        const reading = readDomainName(given.name)
        if (reading.ok) requireDomain(request.principal, reading.name)
        const { record, isNew } = await domains.add(given)
        if (isNew) note('domain added', request, { domain: record.domain })
        return success(record, isNew ? CREATED : OK)
      },
    }),
    get('/domains', {
      summary: 'Lists the verified domains, or those of another state.',
      query: wire.listDomainsSchema,
      ok: okList(wire.domainSchema),
      async handler({ principal }, { status, limit, after }) {
        const query = { status: status ?? 'verified', limit, after }
        const page =
          principal.domains.length === 0
            ? await domains.list(query)
            : await listOwnDomains(principal.domains, query, domains.find)
        return successList(page.domains, page.next)
      },
    }),
    get('/domains/:domain', {
      summary: 'One sending domain with its DNS records.',
      ok: OK_DOMAIN,
      async handler(request) {
        const name = domainInPath(request)
        const domain = await domains.find(name)
        if (domain === null) throw unknownDomain(name)
        return success(domain)
      },
    }),
    patch('/domains/:domain', {
      summary: 'Changes tracking, IP pool or the use of subdomains.',
      body: wire.updateDomainSchema,
      ok: OK_DOMAIN,
      async handler(request, fields) {
        const record = await domains.update(domainInPath(request), {
          tracking: trackingOf(fields.tracking),
          ipPool: fields.ipPool ?? undefined,
          allowSubdomains: fields.allowSubdomains ?? undefined,
        })
        note('domain changed', request, { domain: record.domain })
        return success(record)
      },
    }),
    remove('/domains/:domain', {
      summary: 'Removes a sending domain.',
      query: wire.removeDomainSchema,
      ok: okData(wire.removedDomainSchema),
      async handler(request, { dryRun, purge: asked }) {
        const name = domainInPath(request)
        if (dryRun === 'true') {
          return success({ domain: name, deleted: false, queued_messages: await domains.queuedMessages(name) })
        }
        const purge = asked === 'true'
        const removed = await domains.remove(name, { purge })
        note('domain removed', request, { domain: removed.domain, messages: removed.queued_messages, purge })
        return success(removed)
      },
    }),
  ]
}

/** What is done with one domain. */
function actionRoutes(domains: HttpFeatures['domains'], note: Note): Route[] {
  return [
    post('/domains/:domain/verify', {
      summary: 'Checks the DNS records of a domain now.',
      ok: OK_DOMAIN,
      async handler(request) {
        const { record, isRepeated } = await domains.verify(domainInPath(request))
        if (isRepeated) request.warn('verify: result of the call less than 10 s ago')
        return success(record)
      },
    }),
    get('/domains/:domain/zonefile', {
      summary: 'The DNS records as a snippet of a zone file.',
      ok: { status: OK, schema: z.string(), contentType: 'text/plain' },
      handler: async (request) => ({ status: OK, body: await domains.zoneFile(domainInPath(request)) }),
    }),
    post('/domains/:domain/dkim/rotate', {
      summary: 'Makes the DKIM key that takes over once its record is published.',
      ok: OK_DOMAIN,
      errors: ['conflict'],
      async handler(request) {
        const record = await domains.rotateDkim(domainInPath(request))
        note('DKIM rotation begun', request, { domain: record.domain })
        return success(record)
      },
    }),
  ]
}

function linkRoute(domains: HttpFeatures['domains'], consoleUrl: string | null, note: Note): Route {
  return post('/domains/:domain/link', {
    summary: 'A link that shows the DNS records of a domain to whoever publishes them, for 7 days.',
    ok: okData(wire.domainLinkSchema, CREATED),
    errors: ['conflict'],
    async handler(request) {
      const name = domainInPath(request)
      const { path, expiresAt } = await domains.link(name)
      note('link to the records made', request, { domain: name })
      return success({ url: `${servedConsole(consoleUrl)}dns/${path}`, expires_at: toUnixSeconds(expiresAt) }, CREATED)
    },
  })
}

function authenticationRoute(domains: HttpFeatures['domains'], now: () => number): Route {
  return get('/domains/:domain/authentication', {
    summary: 'What DMARC and TLS reports say of a domain.',
    query: authenticationQuerySchema,
    ok: okData(authenticationSchema),
    async handler(request, range) {
      const name = domainInPath(request)
      const days = reportedDays(range, now())
      // Who has only some domains is told nothing of what concerns the whole server.
      return success(await domains.authentication(name, { ...days, isWhole: reachesServer(request.principal) }))
    },
  })
}

const DEFAULT_DAYS = 30

/** `days` end today; `from` and `to` say the range themselves. */
function reportedDays(
  { days, from, to }: CamelFields<z.infer<typeof authenticationQuerySchema>>,
  now: number,
): { from: string; to: string } {
  if (days !== null && (from !== null || to !== null)) {
    throw new ServiceError('invalid_request', 'days: give either days, or from and to')
  }
  const end = to === null ? now : to * SECOND
  const start = from === null ? end - ((days ?? DEFAULT_DAYS) - 1) * DAY : from * SECOND
  const most = MOST_REPORTED_DAYS * DAY
  if (start > end) throw new ServiceError('invalid_request', 'from: must not be after to')
  if (end - start > most) throw new ServiceError('invalid_request', `at most ${MOST_REPORTED_DAYS} days`)
  if (end > now + most) throw new ServiceError('invalid_request', 'to: lies too far ahead')
  return { from: utcDay(Math.max(0, start)), to: utcDay(end) }
}

/** Lower-case A-labels of the domain in the path (http/README.md "Conventions"). */
function domainInPath(request: ApiRequest): string {
  const given = param(request, 'domain')
  const reading = readDomainName(given)
  requireDomain(request.principal, reading.ok ? reading.name : given)
  if (!reading.ok) throw unknownDomain(given)
  return reading.name
}

function requireDomain(principal: Principal, name: string): void {
  if (!mayUseDomain(principal, name)) throw new ServiceError('forbidden', `the key is not for the domain ${name}`)
}

function addDomainRequest(fields: CamelFields<z.infer<typeof wire.addDomainSchema>>): AddDomainRequest {
  const { domain, name: alias, tracking, dkimSelector: selector, dkimPrivateKey: privateKeyPem, ...same } = fields
  const name = domain ?? alias
  if (name === null) throw new ServiceError('invalid_request', 'domain: is missing')
  return { ...withoutNulls({ ...same, selector, privateKeyPem }), name, tracking: trackingOf(tracking) }
}

function trackingOf(given: z.infer<typeof wire.addDomainSchema>['tracking']) {
  return given == null ? undefined : { opens: given.opens ?? undefined, clicks: given.clicks ?? undefined }
}

type Place = Pick<DomainView, 'created_at' | 'domain'>

/** Seconds of the creation, and the name. */
const CURSOR = /^(\d{1,12})\.(\S+)$/

/**
 * For a key that is limited to some domains: pages over those alone, so that neither the entries nor the cursor tell of
 * others. Newest first, stable while domains are added or removed: the cursor is the place of an entry.
 */
async function listOwnDomains(
  names: readonly string[],
  { status, limit, after }: ListDomainsQuery,
  find: Domains['find'],
): Promise<DomainList> {
  const start = after === null ? null : readCursor(after)
  const found = await Promise.all([...new Set(names)].map((name) => find(name)))
  const matching = found
    .filter((domain) => domain !== null)
    .filter((domain) => hasStatus(domain, status))
    .filter((domain) => start === null || compare(start, domain) < 0)
    .toSorted(compare)
  const domains = matching.slice(0, limit)
  const last = domains.at(-1)
  const next = last !== undefined && matching.length > limit ? `${last.created_at}.${last.domain}` : null
  return { domains, next }
}

function readCursor(text: string): Place {
  const [, createdAt, domain] = CURSOR.exec(text) ?? []
  if (createdAt === undefined || domain === undefined) {
    throw new ServiceError('invalid_request', 'after: is not a cursor of this list')
  }
  return { created_at: Number(createdAt), domain }
}

/** `verified` means "may be used": the field, not the state (http/README.md "Domains"). */
function hasStatus(domain: DomainView, status: ListDomainsQuery['status']): boolean {
  if (status === 'all') return true
  return status === 'verified' ? domain.verified : domain.status === status
}

function compare(left: Place, right: Place): number {
  if (left.created_at !== right.created_at) return right.created_at - left.created_at
  if (left.domain === right.domain) return 0
  return left.domain < right.domain ? -1 : 1
}
