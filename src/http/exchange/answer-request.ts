/**
 * The outermost layer: request id, fixed headers, errors to the envelope, log line and metric. Whatever happens inside,
 * the client gets one answer. A request that is answered before its body has arrived ends the connection.
 */
import type { IncomingMessage } from 'node:http'
import { Readable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Middleware, ParameterizedContext } from 'koa'
import type { Clock } from '../../base/clock.ts'
import { errorCode, errorText, ServiceError } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import { newIdentifier } from '../../base/identifier.ts'
import type { Metrics } from '../../base/metrics.ts'
import { isBodyComing, type UnreadCloser } from './close-unread.ts'
import { errorAnswer } from './error-responses.ts'
import type { HttpFeatures } from './features.ts'
import { ANONYMOUS, type Principal } from './principal.ts'
import { JSON_CONTENT_TYPE, type Answer } from './answer.ts'

interface AnswerOptions {
  clock: Clock
  logger: Logger
  metrics: Metrics
  /** Every answer says that nothing leaves the machine. */
  testMode: boolean
  isStopping(): boolean
  closer: UnreadCloser
  features: { sendingRate: Pick<HttpFeatures['sendingRate'], 'state'> }
}

/** What is known of a request while it is handled, for headers, metrics and log: Koa's `ctx.state`. */
export interface RequestState {
  requestId: string
  /** Path of the route, or `none`. */
  pattern: string
  principal: Principal
  /** The answer; null: Koa sends what its context has. */
  text: string | null
}

export type RequestContext = ParameterizedContext<RequestState>

const TEXT_CONTENT_TYPE = 'text/plain; charset=utf-8'
const MILLISECONDS_PER_SECOND = 1_000
/** The routes whose refusals are refused messages. */
const SEND_PATTERNS = ['/email/send', '/email/batch']

export function createAnswerMiddleware(options: AnswerOptions): Middleware<RequestState> {
  const { clock, logger, metrics, testMode, isStopping, closer } = options
  const logFailure = createErrorLog(logger)

  return async function answerRequest(ctx, next) {
    const startedAt = performance.now()
    ctx.state = { requestId: requestIdOf(ctx.req, clock.now()), pattern: 'none', principal: ANONYMOUS, text: null }
    ctx.res.setHeader('X-Request-Id', ctx.state.requestId)
    ctx.res.setHeader('Cache-Control', 'no-store')
    if (testMode) {
      ctx.res.setHeader('X-Service-Mode', 'test')
      // The clock that holds here may be ahead of the one that Node would take it from.
      ctx.res.setHeader('Date', new Date(clock.now()).toUTCString())
    }
    try {
      refuseWhenStopping(isStopping())
      refuseStrangeRequests(ctx)
      await next()
    } catch (thrown) {
      answerError(ctx, thrown)
    }
    if (ctx.state.principal.mode === 'test') ctx.res.setHeader('X-Service-Mode', 'test')
    tellRate(ctx, options.features.sendingRate.state(ctx.state.principal.apiKeyId))
    if (isStopping()) ctx.res.setHeader('Connection', 'close')
    if (isBodyComing(ctx.req)) await endConnection(ctx)
    const seconds = (performance.now() - startedAt) / MILLISECONDS_PER_SECOND
    const labels = { route: ctx.state.pattern, method: methodLabel(ctx.method), status: ctx.status }
    metrics.httpRequestSeconds.observe(labels, seconds)
    if (ctx.state.text !== null) send(ctx, ctx.state.text)
  }

  function answerError(ctx: RequestContext, thrown: unknown): void {
    const { requestId, pattern, principal } = ctx.state
    const answer = errorAnswer(thrown, requestId)
    if (SEND_PATTERNS.includes(pattern)) metrics.messagesRejected.inc({ code: answer.code })
    const fields = { code: answer.code, request_id: requestId, route: pattern, api_key: principal.label }
    logFailure(thrown, fields)
    for (const [name, value] of Object.entries(answer.headers)) ctx.res.setHeader(name, value)
    sendJson(ctx, answer.status, answer.body)
  }

  /** A body that came in one piece with the head is there a turn later: then the connection can live on. */
  async function endConnection(ctx: RequestContext): Promise<void> {
    await nextTurn()
    if (isBodyComing(ctx.req)) closer.closeAfterAnswer(ctx.req, ctx.res)
  }
}

/** 1 to 128 letters, digits, dots, underscores and hyphens. */
const CLIENT_REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/

/** The client's own X-Request-Id when it is harmless, else a new one. */
function requestIdOf({ headers }: IncomingMessage, now: number): string {
  const given = headers['x-request-id']
  return typeof given === 'string' && CLIENT_REQUEST_ID.test(given) ? given : newIdentifier('req', now)
}

/** The bucket that is nearest to empty once this request has taken from it. */
function tellRate(ctx: RequestContext, state: ReturnType<HttpFeatures['sendingRate']['state']>): void {
  if (state === null) return
  ctx.res.setHeader('RateLimit-Limit', state.limit)
  ctx.res.setHeader('RateLimit-Remaining', state.remaining)
  ctx.res.setHeader('RateLimit-Reset', state.resetSeconds)
}

export function sendText(ctx: RequestContext, status: number, text: string, type = TEXT_CONTENT_TYPE): void {
  ctx.status = status
  ctx.res.setHeader('Content-Type', type)
  ctx.state.text = text
}

/** `body` is JSON already. */
export function sendJson(ctx: RequestContext, status: number, body: string): void {
  sendText(ctx, status, body, JSON_CONTENT_TYPE)
}

/** What Koa would do beside it is for bodies that are no text. */
function send(ctx: RequestContext, text: string): void {
  ctx.respond = false
  ctx.res.setHeader('Content-Length', Buffer.byteLength(text))
  ctx.res.end(text)
}

/** Koa's pipeline adds its own to those of our layers: more than ten are no leak. */
const MOST_LISTENERS = 20

/** Its type is a header that the handler has set. */
export function sendStream(
  ctx: RequestContext,
  status: number,
  { stream, stopping }: { stream: NonNullable<Answer['stream']>; stopping: AbortSignal },
): void {
  const gone = new AbortController()
  ctx.res.once('close', () => gone.abort())
  // A stream has no end to wait for: who closes their half has left, and `close` would come behind two more heartbeats.
  ctx.req.socket.once('end', () => gone.abort())
  // The client left before: it is not told again.
  if (ctx.res.destroyed || ctx.req.socket.readableEnded) gone.abort()
  ctx.res.setMaxListeners(MOST_LISTENERS)
  ctx.status = status
  ctx.body = Readable.from(stream(AbortSignal.any([gone.signal, stopping])))
}

function refuseWhenStopping(isStopping: boolean): void {
  if (isStopping) throw new ServiceError('unavailable', 'the server is shutting down')
}

/** Scheme and authority of a target in absolute form (RFC 9112 §3.2.2). */
const ABSOLUTE_TARGET = /^[A-Za-z][A-Za-z0-9+.-]*:\/\/[^/?#]*/

/** Targets become origin form; the host is never used, only its absence is an error (RFC 9112 §3.2). */
function refuseStrangeRequests(ctx: RequestContext): void {
  const { req: request } = ctx
  if (request.httpVersion === '1.1' && request.headers.host === undefined) {
    throw new ServiceError('invalid_request', 'the Host header is missing', { status: 400 })
  }
  if (request.url?.startsWith('/') === true) return
  const target = (request.url ?? '').replace(ABSOLUTE_TARGET, '')
  request.url = target.startsWith('/') || target.startsWith('*') ? target : `/${target}`
}

const REFUSAL_EVERY_MILLISECONDS = 10_000
const MOST_REASONS = 100

/**
 * Defects are errors; what the service could not do now is a warning, once in ten seconds for each reason, as metrics
 * count them all; a refusal is the client's business.
 */
function createErrorLog(logger: Logger) {
  const saidAt = new Map<string, number>()
  const isNews = (reason: string): boolean => {
    const now = performance.now()
    if (now - (saidAt.get(reason) ?? -Infinity) < REFUSAL_EVERY_MILLISECONDS) return false
    if (saidAt.size >= MOST_REASONS) saidAt.clear()
    saidAt.set(reason, now)
    return true
  }
  return (thrown: unknown, fields: Record<string, string>): void => logError(logger, isNews, { thrown, fields })
}

type Failure = { thrown: unknown; fields: Record<string, string> }

function logError(logger: Logger, isNews: (reason: string) => boolean, { thrown, fields }: Failure): void {
  if (!(thrown instanceof ServiceError) || thrown.code === 'internal_error') {
    const stack = thrown instanceof Error ? thrown.stack : undefined
    logger.error({ ...fields, error: errorText(thrown), error_code: errorCode(thrown), stack }, 'request failed')
  } else if (thrown.code === 'unavailable') {
    const cause = thrown.cause === undefined ? {} : { error: errorText(thrown.cause) }
    const level = isNews(thrown.details) ? 'warn' : 'debug'
    logger[level]({ ...fields, ...cause, details: thrown.details }, 'request refused')
  } else {
    logger.debug({ ...fields, details: thrown.details }, 'request refused')
  }
}

const KNOWN_METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']

/** Few values: a client can send any word as a method. */
function methodLabel(method: string): string {
  return KNOWN_METHODS.includes(method) ? method : 'other'
}
