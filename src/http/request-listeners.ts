/**
 * What listens to requests, one application for each kind of listener: the layers in order, and nothing else.
 *
 * answer-request (outermost) · handlers of the listener · handle-request.
 */
import type { ServerResponse } from 'node:http'
import Koa, { type Middleware } from 'koa'
import type { Clock } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { AcmeChallenges } from './acme-handshake.ts'
import { createAcmeRoutes } from './acme-routes.ts'
import { createConsoleAssets } from './console/console-assets.ts'
import { createConsoleRoutes } from './console/console-routes.ts'
import { servesConsole } from './console/console-address.ts'
import { createAnswerMiddleware, sendJson, sendStream, sendText, type RequestState } from './exchange/answer-request.ts'
import {
  authenticateAdministrator,
  createFailedLogins,
  createKeyAuthentication,
  type Authenticate,
} from './exchange/authenticate.ts'
import type { BodyReader } from './exchange/body-reader.ts'
import { createUnreadCloser } from './exchange/close-unread.ts'
import type { HttpFeatures } from './exchange/features.ts'
import { createRequestHandler } from './exchange/handle-request.ts'
import { createAnswerOnce } from './exchange/idempotency.ts'
import type { BodyThread } from './exchange/body-thread.ts'
import type { Route } from './exchange/route.ts'
import { createPipelineLimit } from './exchange/pipelined.ts'
import { createRouteTable } from './exchange/route-table.ts'
import { createSessionAuthentication } from './exchange/session.ts'
import type { HttpSettings, RequestListener } from './make-server.ts'
import type { HttpListener } from './open-listener.ts'
import { apiRoutes } from './routes/routes.ts'
import { createTrackingRoutes } from './tracking/tracking-routes.ts'

export interface RequestListenersOptions {
  features: HttpFeatures
  settings: HttpSettings
  clock: Clock
  logger: Logger
  metrics: Metrics
  /** Folder of `http.acme_webroot`, asked for at each request; null: none. */
  acmeWebroot: () => string | null
  /** Of `tls.acme`; null: no authority is asked. */
  acmeChallenges?: AcmeChallenges | null | undefined
  /** Answers say that this is no production server. */
  testMode: boolean
  /** Koa middleware that runs before the API's routes. */
  extraHandlers?: Middleware[]
  bodies: BodyReader
  thread: BodyThread
  /** Told of each request. */
  onRequest(response: ServerResponse): void
  /** The server stops. */
  stopping: AbortSignal
}

/** One application for each kind of listener; they differ in routes and in who asks. */
export function createRequestListeners(options: RequestListenersOptions) {
  const { features, settings, clock, bodies, thread, onRequest, stopping, extraHandlers = [] } = options
  const logger = options.logger.child({ part: 'http' })
  const closer = createUnreadCloser()
  const pipeline = createPipelineLimit()
  const answer = createAnswerMiddleware({ ...options, logger, closer, isStopping: () => stopping.aborted })
  const bodyLimit = { bytes: settings.http.max_body_other, code: 'payload_too_large' } as const
  const answerOnce = createAnswerOnce(features.idempotency, logger)
  const common = {
    ...features,
    trustedProxies: settings.http.trusted_proxies,
    failedLogins: createFailedLogins({ clock }),
    testMode: options.testMode,
  }
  const withKey = createKeyAuthentication(common)
  const withSession = createSessionAuthentication({ ...common, otherwise: withKey })

  const listenerFor = (table: Route[], authenticate: Authenticate, handlers: Middleware[]): RequestListener => {
    const shared = { features, answerOnce, bodies, thread, bodyLimit }
    const handleRequest = createRequestHandler({ ...shared, routes: createRouteTable(table), authenticate })
    const app = new Koa<RequestState>()
    for (const layer of [answer, ...handlers]) app.use(layer)
    app.use(async (ctx) => {
      const { status, body, stream, contentType } = await handleRequest(ctx)
      if (stream !== undefined) sendStream(ctx, status, { stream, stopping })
      else if (typeof body === 'string') sendText(ctx, status, body, contentType)
      else sendJson(ctx, status, JSON.stringify(body))
    })
    // Only errors after the answer was made arrive here: the client has gone.
    app.on('error', (error: unknown) => logger.debug({ error: errorText(error) }, 'answer not delivered'))
    const handle = app.callback()
    return (request, response) => {
      // What was pipelined behind a request whose body nobody read.
      if (closer.isClosing(request.socket) || !pipeline.admit(request, response)) return
      onRequest(response)
      void handle(request, response)
    }
  }

  const all = apiRoutes({
    features,
    logger,
    mostMailBytes: settings.http.max_body,
    mostRecipients: settings.api.batch_recipients,
  })
  const tracking = createTrackingRoutes({
    features,
    bodies,
    trustedProxies: settings.http.trusted_proxies,
    abuseAddress: settings.operator.email,
  })
  const acme = createAcmeRoutes(options.acmeWebroot, options.acmeChallenges?.tokens)
  const assets = createConsoleAssets()
  const console = createConsoleRoutes({ ...common, authenticate: withSession, assets, bodies, logger })
  return {
    administrator: listenerFor(all, authenticateAdministrator, []),
    /** What the listener does not serve is not there. */
    of(listener: HttpListener): RequestListener {
      const { serve } = listener
      const hasApi = serve.includes('api')
      const hasConsole = hasApi && servesConsole(listener, settings)
      const handlers = [
        ...(serve.includes('acme') ? [acme] : []),
        ...(hasApi ? extraHandlers : []),
        ...(hasConsole ? [console] : []),
        ...(serve.includes('tracking') ? [tracking] : []),
        ...(serve.includes('redirect') ? [createRedirectRest(settings.public_url, { hasApi })] : []),
      ]
      if (!hasApi) return listenerFor([], knowsNobody, handlers)
      return listenerFor(all, hasConsole ? withSession : withKey, handlers)
    },
  }
}

/** Where the API is not served, no key is looked at: it may have crossed the network in plain text. */
const knowsNobody: Authenticate = async ({ url = '' }) => {
  throw new ServiceError('not_found', `path ${url.split('?', 1)[0]}`)
}

const PERMANENT = 308
/** Of the API, where that is served here too. */
const API_PATH = /^\/(?:(?:api\/)?v1(?:\/|$)|health$|metrics$|(?:dev|console)(?:\/|$))/

/**
 * Whatever nothing else answers goes to https under `public_url`. The host of the request is never used: nobody can be
 * led elsewhere through us. A request with a body has crossed the network in plain text already: 404.
 */
function createRedirectRest(publicUrl: string, { hasApi }: { hasApi: boolean }): Middleware<RequestState> {
  const { host } = new URL(publicUrl)
  return async function redirect(ctx, next) {
    // A target such as `*` is no path: behind the host it would become part of the name.
    const isPage = (ctx.method === 'GET' || ctx.method === 'HEAD') && ctx.url.startsWith('/')
    if (!isPage || (hasApi && API_PATH.test(ctx.path))) return next()
    ctx.state.pattern = 'redirect'
    ctx.status = PERMANENT
    // As a header takes it: Node refuses a request target with anything else.
    ctx.res.setHeader('Location', `https://${host}${ctx.url}`)
    ctx.body = ''
  }
}
