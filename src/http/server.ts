/**
 * The HTTP servers: the API on the configured addresses, and for the administrator on a Unix socket.
 *
 * `start` opens all listeners or none and returns the bound ports. `stop` ends in order: no new connections, new
 * requests on kept connections get 503, running requests finish within 10 s, the rest is cut. Limits of heads, bodies
 * and connections are those of src/README.md "Bounds".
 */
import type { Server } from 'node:http'
import { Server as NetServer } from 'node:net'
import type { Socket } from 'node:net'
import type { Middleware } from 'koa'
import type { Clock } from '../base/clock.ts'
import { SECOND } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import type { PassedSockets } from '../base/service/passed-sockets.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import { createAcmeRoutes } from './acme-routes.ts'
import { createAnswerOnce } from './exchange/answer-once.ts'
import { createAnswerMiddleware } from './exchange/answer-request.ts'
import { createApp } from './app.ts'
import { authenticateAdministrator, createKeyAuthentication } from './exchange/authenticate.ts'
import type { Authenticate } from './exchange/authenticate.ts'
import { BODY_READER_DEFAULTS, createBodyReader } from './exchange/body-reader.ts'
import type { BodyReader } from './exchange/body-reader.ts'
import { createUnreadCloser } from './exchange/close-unread.ts'
import { createConnectionLimits } from './connection-limits.ts'
import { createFailedLogins } from './exchange/failed-logins.ts'
import type { HttpFeatures } from './exchange/features.ts'
import { createRequestHandler } from './exchange/handle-request.ts'
import { makeServer } from './make-server.ts'
import type { HttpSettings, MadeServer, RequestListener } from './make-server.ts'
import { openAdminSocket, openListener } from './open-listener.ts'
import type { HttpListener } from './open-listener.ts'
import { createJsonReader } from './exchange/read-json.ts'
import { createRedirectRest } from './redirect-rest.ts'
import type { Route } from './exchange/route.ts'
import { createRouteTable } from './exchange/route-table.ts'
import { apiRoutes } from './routes/routes.ts'
import { createRunningRequests } from './running-requests.ts'
import type { RunningRequests } from './running-requests.ts'
import { createTrackingRoutes } from './tracking/tracking-routes.ts'

export interface HttpServersOptions {
  features: HttpFeatures
  settings: HttpSettings
  clock: Clock
  logger: Logger
  metrics: Metrics
  /** Folder of `http.acme_webroot`, asked for at each request; null: none. */
  acmeWebroot: () => string | null
  /** Answers say that this is no production server. */
  testMode: boolean
  /** Koa middleware that runs before the API's routes. */
  extraHandlers?: Middleware[]
  /** Sockets that are open already. */
  passed?: PassedSockets | undefined
}

export interface HttpServers {
  /** The bound ports, in the order of `listeners`. */
  start(listeners: readonly HttpListener[], adminSocket: string | null): Promise<number[]>
  /** For handshakes from now on. */
  setCertificates(certificates: ServerCertificates): void
  stop(): Promise<void>
}

const STOP_MILLISECONDS = 10 * SECOND

export function createHttpServers(options: HttpServersOptions): HttpServers {
  const { settings, clock } = options
  const { connections, trusted_proxies: trustedProxies } = settings.http
  const { total, per_address: perAddress } = connections
  const limits = createConnectionLimits({ total, perAddress, trustedProxies })
  const bodies = createBodyReader(BODY_READER_DEFAULTS)
  const running = createRunningRequests()
  const servers: Server[] = []
  const made: MadeServer[] = []
  const stopping = new AbortController()
  const requestListeners = createRequestListeners({ ...options, bodies, running, stopping: stopping.signal })

  const addServer = (listener: RequestListener, tls: boolean): Server => {
    const added = makeServer(listener, { settings, tls, clock })
    made.push(added)
    servers.push(added.server)
    return added.server
  }

  const closeAll = (): void => {
    for (const server of servers) {
      server.close()
      server.closeAllConnections()
    }
    bodies.stop()
  }

  return {
    setCertificates(certificates) {
      for (const each of made) each.setCertificates(certificates)
    },
    async start(listeners, adminSocket) {
      try {
        const ports: number[] = []
        for (const listener of listeners) {
          const server = addServer(requestListeners.of(listener), listener.tls)
          server.prependListener('connection', (socket: Socket) => limits.admit(socket))
          ports.push(await openListener(server, listener, options.passed))
        }
        if (adminSocket !== null) await openAdminSocket(addServer(requestListeners.administrator, false), adminSocket)
        return ports
      } catch (thrown) {
        closeAll()
        throw thrown
      }
    },
    async stop() {
      stopping.abort()
      // The close of http.Server would also cut idle connections, on which a request may be on its way: it gets a 503.
      for (const server of servers) NetServer.prototype.close.call(server)
      await running.finished(STOP_MILLISECONDS)
      closeAll()
    },
  }
}

interface RequestListenersOptions extends HttpServersOptions {
  bodies: BodyReader
  running: RunningRequests
  stopping: AbortSignal
}

/** One application for each kind of listener; they differ in routes and in who asks. */
function createRequestListeners(options: RequestListenersOptions) {
  const { features, settings, clock, bodies, running, stopping, extraHandlers = [] } = options
  const logger = options.logger.child({ part: 'http' })
  const closer = createUnreadCloser()
  const answer = createAnswerMiddleware({ ...options, logger, closer, isStopping: () => stopping.aborted })
  const json = createJsonReader()
  const bodyLimit = { bytes: settings.http.max_body_other, code: 'payload_too_large' } as const
  const answerOnce = createAnswerOnce({ idempotency: features.idempotency, logger })
  const withKey = createKeyAuthentication({
    apiKeys: features.apiKeys,
    trustedProxies: settings.http.trusted_proxies,
    failedLogins: createFailedLogins({ clock }),
  })

  const listenerFor = (table: Route[], authenticate: Authenticate, handlers: Middleware[]): RequestListener => {
    const routes = createRouteTable(table)
    const handleRequest = createRequestHandler({ routes, authenticate, features, answerOnce, bodies, json, bodyLimit })
    const handle = createApp({ answer, extraHandlers: handlers, handleRequest, logger, stopping })
    return (request, response) => {
      // What was pipelined behind a request whose body nobody read.
      if (closer.isClosing(request.socket)) return
      running.add(response)
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
  const acme = createAcmeRoutes(options.acmeWebroot)
  return {
    administrator: listenerFor(all, authenticateAdministrator, []),
    /** What the listener does not serve is not there. */
    of({ serve }: HttpListener): RequestListener {
      const hasApi = serve.includes('api')
      const handlers = [
        ...(serve.includes('acme') ? [acme] : []),
        ...(hasApi ? extraHandlers : []),
        ...(serve.includes('tracking') ? [tracking] : []),
        ...(serve.includes('redirect') ? [createRedirectRest(settings.public_url, { hasApi })] : []),
      ]
      return hasApi ? listenerFor(all, withKey, handlers) : listenerFor([], knowsNobody, handlers)
    },
  }
}

/** Where the API is not served, no key is looked at: it may have crossed the network in plain text. */
const knowsNobody: Authenticate = async ({ url = '' }) => {
  throw new ServiceError('not_found', `path ${url.split('?', 1)[0]}`)
}
