/**
 * The steps of an API request, in the order of contract.md 2.1: the first failing step answers.
 *
 *  1 the server accepts work · 2 authentication · 3 path, then method · 4 scope · 6 content type, then body size ·
 *  7 JSON syntax · 9 and later: the handler of the route
 *
 * Steps 5 and 8 (request rate, idempotency) have their place here when they come. Every failure is thrown as a
 * ServiceError; `answer-request.ts` turns it into the envelope.
 */
import type { IncomingMessage } from 'node:http'
import { ServiceError } from '../base/errors.ts'
import type { RequestContext } from './answer-request.ts'
import type { Authenticate } from './authenticate.ts'
import type { BodyLimit, BodyReader } from './body-reader.ts'
import type { JsonReader } from './read-json.ts'
import { hasScope } from '../senders/api-key.ts'
import type { Principal } from './principal.ts'
import { EMPTY_DOCUMENT } from './route.ts'
import type { Answer, ApiRequest, Route, RouteBody } from './route.ts'
import type { RouteTable } from './route-table.ts'
import { createWarnings } from './warnings.ts'

export interface RequestHandlerOptions {
  routes: RouteTable
  authenticate: Authenticate
  bodies: BodyReader
  json: JsonReader
  /** For routes without a limit of their own. */
  bodyLimit: BodyLimit
}

/** The two parts of a URL in origin form: up to the question mark, and behind it. */
const TARGET = /^([^?]*)\??(.*)$/s

export type RequestHandler = (ctx: RequestContext) => Promise<Answer>

export function createRequestHandler(options: RequestHandlerOptions): RequestHandler {
  const { routes, authenticate, bodies, json } = options

  return async function handleRequest(ctx) {
    const { req: request, state } = ctx
    const [, path = '', search = ''] = TARGET.exec(request.url ?? '') ?? []
    const found = routes.find(path, ctx.method)
    const isPublic = found.kind === 'found' ? found.route.scope === null : found.isPublic
    if (found.kind === 'found') state.pattern = found.route.path
    if (!isPublic) state.principal = await authenticate(request)
    if (found.kind === 'unknown-path') throw new ServiceError('not_found', `path ${path}`)
    if (found.kind === 'wrong-method') {
      throw new ServiceError('method_not_allowed', `allowed: ${found.allow}`, { headers: { Allow: found.allow } })
    }
    const { route, params } = found
    requireScope(state.principal, route)
    const { add: warn } = createWarnings(ctx.res)
    const apiRequest: ApiRequest = { requestId: state.requestId, principal: state.principal, params, search, warn }
    if (route.body === null) return route.handle(apiRequest, EMPTY_DOCUMENT)
    return handleWithBody(ctx, apiRequest, { route, body: route.body })
  }

  async function handleWithBody(ctx: RequestContext, apiRequest: ApiRequest, target: BodyTarget): Promise<Answer> {
    const { route, body } = target
    requireJson(ctx.req)
    const bytes = await bodies.read(ctx.req, ctx.res, body.limit ?? options.bodyLimit)
    try {
      const isNothing = bytes.length === 0 && body.takesNothing
      return await route.handle(apiRequest, isNothing ? EMPTY_DOCUMENT : json.read(bytes))
    } finally {
      bodies.release(bytes.length)
    }
  }
}

interface BodyTarget {
  route: Route
  body: RouteBody
}

function requireScope(principal: Principal, { scope }: Route): void {
  if (scope === null || hasScope(principal, scope)) return
  throw new ServiceError('forbidden', `the key lacks the scope ${scope}`)
}

/** application/json or any type ending in +json, any parameters; a missing type counts as JSON. */
const JSON_TYPE = /^\s*(?:application\/json|[\w!#$&^.+-]+\/[\w!#$&^.-]+\+json)\s*(?:;|$)/i

function requireJson({ headers }: IncomingMessage): void {
  const type = headers['content-type']
  if (type !== undefined && !JSON_TYPE.test(type)) {
    throw new ServiceError('invalid_request', 'Content-Type: expected application/json', { status: 415 })
  }
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding.trim().toLowerCase() !== 'identity') {
    throw new ServiceError('invalid_request', 'Content-Encoding: only identity is taken', { status: 415 })
  }
}
