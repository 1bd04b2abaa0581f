/**
 * The steps of an API request, in the order of http/README.md "Order of checks": the first failing step answers. From
 * step 9 on it is the handler of the route. Every failure is thrown, as a ServiceError or as the store's own.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { ServiceError } from '../../base/errors.ts'
import { givenKey, type AnswerOnce } from './idempotency.ts'
import type { RequestContext } from './answer-request.ts'
import type { Authenticate } from './authenticate.ts'
import type { BodyLimit, BodyReader } from './body-reader.ts'
import type { HttpFeatures } from './features.ts'
import type { BodyThread } from './body-thread.ts'
import { readJson, readText, type JsonDocument } from './read-json.ts'
import { hasScope } from '../../senders/api-key.ts'
import type { Principal } from './principal.ts'
import type { Answer } from './answer.ts'
import { EMPTY_DOCUMENT, type ApiRequest, type Route, type RouteBody } from './route.ts'
import { pathBelowPrefix, splitTarget, type RouteTable } from './route-table.ts'

interface RequestHandlerOptions {
  routes: RouteTable
  authenticate: Authenticate
  features: Pick<HttpFeatures, 'mailRefusal' | 'sendingRate'>
  answerOnce: AnswerOnce
  bodies: BodyReader
  thread: Pick<BodyThread, 'readJson'>
  /** For routes without a limit of their own. */
  bodyLimit: BodyLimit
}

type RequestHandler = (ctx: RequestContext) => Promise<Answer>

export function createRequestHandler(options: RequestHandlerOptions): RequestHandler {
  const { routes, authenticate, features, answerOnce, bodies, thread } = options

  return async function handleRequest(ctx) {
    const { req: request, res: response, state } = ctx
    const { path, search } = splitTarget(request.url ?? '')
    const found = routes.find(path, ctx.method)
    const isPublic = found.kind === 'found' ? found.route.scope === null : found.isPublic
    if (found.kind === 'found') {
      state.pattern = found.route.path
      await refuseWhenFull(found.route)
    }
    if (!isPublic) state.principal = await authenticate(request)
    if (found.kind === 'unknown-path') throw new ServiceError('not_found', `path ${path}`)
    if (found.kind === 'wrong-method') {
      throw new ServiceError('method_not_allowed', `allowed: ${found.allow}`, { headers: { Allow: found.allow } })
    }
    const { route, params } = found
    const { requestId, principal } = state
    requireScope(principal, route)
    features.sendingRate.takeRequest(principal.apiKeyId)
    const apiRequest: ApiRequest = {
      requestId,
      principal,
      params,
      search,
      path: pathBelowPrefix(path),
      headers: request.headers,
      idempotency: null,
      warn: createWarning(response),
      setHeader: (name, value) => void response.setHeader(name, value),
    }
    if (route.body === null) return answerOnce(apiRequest, route, EMPTY_DOCUMENT)
    // With `await` it takes one turn of the microtasks in place of three.
    return await handleWithBody(ctx, apiRequest, route, route.body)
  }

  async function refuseWhenFull({ idempotency }: Route): Promise<void> {
    if (idempotency !== 'with-message') return
    const refusal = await features.mailRefusal()
    if (refusal === null) return
    const headers = { 'Retry-After': String(refusal.retryAfterSeconds) }
    throw new ServiceError('unavailable', refusal.reason, { headers })
  }

  /** While a body came that took its time the key may have been revoked, or changed. */
  async function authenticateAgain(ctx: RequestContext, apiRequest: ApiRequest, route: Route): Promise<void> {
    if (route.scope === null) return
    ctx.state.principal = await authenticate(ctx.req)
    requireScope(ctx.state.principal, route)
    apiRequest.principal = ctx.state.principal
  }

  async function handleWithBody(
    ctx: RequestContext,
    apiRequest: ApiRequest,
    route: Route,
    body: RouteBody,
  ): Promise<Answer> {
    requireType(ctx.req, body)
    const readSince = performance.now()
    const bytes = await bodies.read(ctx.req, ctx.res, body.limit ?? options.bodyLimit)
    const { length } = bytes
    try {
      if (performance.now() - readSince > SHORT_BODY) await authenticateAgain(ctx, apiRequest, route)
      const isLarge = length > MOST_BYTES_HERE && body.contentType === 'application/json'
      const document = isLarge
        ? await thread.readJson(bytes, givenKey(ctx.req.headers) !== undefined)
        : readDocument(bytes, body)
      return await answerOnce(apiRequest, route, document)
    } finally {
      bodies.release(length)
    }
  }
}

/** Milliseconds: a body that came sooner came with its request. */
const SHORT_BODY = 100
/** What takes at most some milliseconds to read, whatever is in it. A larger JSON body is read by its own thread. */
const MOST_BYTES_HERE = 64 * 1024

function readDocument(bytes: Buffer, { contentType, takesNothing }: RouteBody): JsonDocument {
  if (contentType !== 'application/json') return { value: readText(bytes), unsafe: [] }
  return bytes.length === 0 && takesNothing ? EMPTY_DOCUMENT : readJson(bytes)
}

function requireScope(principal: Principal, route: Route): void {
  const { scope } = route
  if (scope === null) return
  if (!hasScope(principal, scope)) throw new ServiceError('forbidden', `the key lacks the scope ${scope}`)
  const problem = roleProblem(principal, route)
  if (problem !== undefined) throw new ServiceError('forbidden', problem)
}

/** A reader changes nothing; people and API keys are for owners. Returns what is wrong, as a clause. */
function roleProblem({ person }: Principal, { method, isForOwners }: Route): string | undefined {
  if (person === null || person.role === 'owner') return undefined
  if (isForOwners === true) return `people and API keys are for owners, and ${person.name} is ${person.role}`
  return person.role === 'reader' && method !== 'GET' ? `${person.name} is reader and changes nothing` : undefined
}

/** The types a body may have; any parameters. A missing type counts as the one that is wanted. */
const TYPES: Record<RouteBody['contentType'], RegExp> = {
  // application/json, or any type ending in +json
  'application/json': /^\s*(?:application\/json|[\w!#$&^.+-]+\/[\w!#$&^.-]+\+json)\s*(?:;|$)/i,
  'text/csv': /^\s*text\/csv\s*(?:;|$)/i,
}

function requireType({ headers }: IncomingMessage, { contentType }: RouteBody): void {
  const type = headers['content-type']
  if (type !== undefined && !TYPES[contentType].test(type)) {
    throw new ServiceError('invalid_request', `Content-Type: expected ${contentType}`, { status: 415 })
  }
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding.trim().toLowerCase() !== 'identity') {
    throw new ServiceError('invalid_request', 'Content-Encoding: only identity is taken', { status: 415 })
  }
}

const MOST_WARNING_BYTES = 1_000

/** Adds texts to X-Service-Warnings (http/README.md "Conventions"); what does not fit is left out. */
function createWarning(response: ServerResponse): (text: string) => void {
  let value = ''
  return (text) => {
    const longer = value === '' ? escape(text) : `${value},${escape(text)}`
    if (longer.length > MOST_WARNING_BYTES) return
    value = longer
    response.setHeader('X-Service-Warnings', value)
  }
}

/** Everything but printable ASCII, and the comma that separates, and the backslash that escapes. */
const UNSAFE = /[^\x20-\x2b\x2d-\x5b\x5d-\x7e]/g

function escape(text: string): string {
  return text.replace(UNSAFE, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`)
}
