/**
 * The table of all API routes (http/README.md) and of those for administrators, which stand in no contract. Order means
 * nothing: paths without parameters come first by rule.
 */
import { z } from 'zod'
import { ServiceError } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import { packageVersion } from '../../base/package-version.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { reachesServer } from '../exchange/principal.ts'
import { JSON_CONTENT_TYPE, OK, successList, type Answer } from '../exchange/answer.ts'
import { createNote, routesOf, type ApiRequest, type Note, type Route } from '../exchange/route.ts'
import { openApiDocument } from '../openapi/document.ts'
import { domainRoutes } from './domains.ts'
import { emailRoutes } from './email.ts'
import { checkRoutes, healthRoutes } from './health.ts'
import { ipAdministrationRoutes, ipRoutes } from './ips.ts'
import { keyRoutes } from './keys.ts'
import { peopleRoutes } from './people.ts'
import { messageRoutes } from './messages.ts'
import { nodeRoutes } from './nodes.ts'
import { queueRoutes } from './queue.ts'
import { serverRoutes } from './server.ts'
import { statisticsRoutes } from './statistics.ts'
import { suppressionRoutes } from './suppressions.ts'
import { webhookRoutes } from './webhooks.ts'

const { get } = routesOf(null)

interface RoutesOptions {
  features: HttpFeatures
  logger: Logger
  /** Of a body that holds a mail. */
  mostMailBytes: number
  /** Of a batch. */
  mostRecipients: number
}

export function apiRoutes({ features, logger, mostMailBytes, mostRecipients }: RoutesOptions): Route[] {
  const note = createNote(logger, features.logins)
  const contract: Route[] = [
    ...emailRoutes({ features, mostMailBytes, mostRecipients }),
    ...messageRoutes(features, note),
    ...domainRoutes(features, note).map(ofLiveSide),
    ...ipRoutes(features, note).map(ofWholeServer).map(ofLiveSide),
    ...webhookRoutes(features, note),
    ...suppressionRoutes(features, note),
    ...statisticsRoutes(features),
    ...keyRoutes(features, note).map(forOwners),
    ...healthRoutes(features),
    openApiRoute(() => document),
  ]
  // Anybody may ask for it, and writing it takes milliseconds.
  const document = JSON.stringify(openApiDocument(contract, packageVersion()))
  return [...contract, ...administrationRoutes(features, note)]
}

/** GET /openapi.json: public, the document of all routes of the contract, itself included. */
function openApiRoute(document: () => string): Route {
  return get('/openapi.json', {
    summary: 'This document.',
    ok: { status: OK, schema: z.looseObject({ openapi: z.string(), info: z.looseObject({}) }) },
    handler: async () => ({ status: OK, body: document(), contentType: JSON_CONTENT_TYPE }),
  })
}

function administrationRoutes(features: HttpFeatures, note: Note): Route[] {
  const { administration } = features
  const routes = [
    ...queueRoutes(administration, note),
    ...ipAdministrationRoutes(administration, note),
    ...checkRoutes(administration),
    ...serverRoutes(administration, note),
    ...nodeRoutes(administration, note),
    ...peopleRoutes(features, note).map(forOwners),
  ]
  return routes.map(forAdministrators)
}

/**
 * They act on the mail of everybody: a test key, or one that is limited to some sending domains, may not use them,
 * whatever its scopes.
 */
function forAdministrators(open: Route): Route {
  return guarded({ ...open, isInternal: true }, ({ principal }) => {
    if (reachesServer(principal)) return
    throw new ServiceError('forbidden', 'a test key, or a key for some sending domains, does not administer the server')
  })
}

const forOwners = (open: Route): Route => ({ ...open, isForOwners: true })

/** IPs are there for all live mail. */
function ofWholeServer(open: Route): Route {
  return guarded(open, ({ principal }) => {
    if (principal.reach.domains.length === 0) return
    throw new ServiceError('forbidden', 'IPs serve all sending domains: a key for some of them has no access')
  })
}

/** Domains and IPs are on the live side: for a test key there are none. */
function ofLiveSide(open: Route): Route {
  return guarded(open, ({ principal, params, path }) => {
    if (principal.reach.isTest !== true) return
    if (open.method === 'GET' && Object.keys(params).length === 0) return successList([])
    const [named] = Object.values(params)
    if (named !== undefined) throw new ServiceError('not_found', named.slice(0, 64))
    throw new ServiceError('forbidden', `a test key adds nothing to ${path}`)
  })
}

/** `check` answers in place of the route, or throws, or lets the request pass. */
function guarded(open: Route, check: (request: ApiRequest) => Answer | undefined): Route {
  return { ...open, handle: async (request, document) => check(request) ?? open.handle(request, document) }
}
