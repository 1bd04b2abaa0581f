/**
 * `GET /metrics` in the Prometheus text format, on a listener of its own (health/README.md "Metrics and alerts"): from
 * loopback, from elsewhere only with `Authorization: Bearer <metrics.token>`. Everything else is 404. A port that is
 * taken ends the start with exit 75, an address that is not ours with 78.
 */
import { timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { Middleware } from 'koa'
import { SECOND } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { isLoopback } from '../base/ip-address.ts'
import type { Metrics } from '../base/metrics.ts'
import { openPort } from '../base/service/open-port.ts'
import type { PassedSockets } from '../base/service/passed-sockets.ts'
import { createConnectionLimits, endUnread } from './connection-limits.ts'
import type { RequestState } from './exchange/answer-request.ts'

interface MetricsServerOptions {
  metrics: Metrics
  /** An IP, or `*`. */
  address: string
  port: number
  /** null: loopback only. */
  token: string | null
  /** Sockets that are open already. */
  passed?: PassedSockets | undefined
}

interface MetricsServer {
  stop(): Promise<void>
}

/** A few readers; whoever else comes must not take what mail and the API need, nor the place of the readers. */
const CONNECTIONS = { total: 100, perAddress: 20, trustedProxies: [] }
const HEAD_MILLISECONDS = 10 * SECOND
/** For a body, which nobody needs to send, and for reading the answer. */
const REQUEST_MILLISECONDS = 30 * SECOND

export async function startMetricsServer(options: MetricsServerOptions): Promise<MetricsServer> {
  const { metrics, address, port, token } = options
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const isMetrics = request.method === 'GET' && request.url === '/metrics'
    if (!isMetrics || !mayRead(request, token)) {
      response.writeHead(404, { Connection: 'close' }).end()
      return
    }
    response.setHeader('Content-Type', metrics.registry.contentType)
    response.end(await metrics.text())
  }
  const times = { headersTimeout: HEAD_MILLISECONDS, requestTimeout: REQUEST_MILLISECONDS }
  const server = createServer({ ...times, connectionsCheckingInterval: SECOND }, (request, response) => {
    answer(request, response).catch((thrown: unknown) => response.destroy(new Error(errorText(thrown))))
  })
  const limits = createConnectionLimits(CONNECTIONS)
  server.prependListener('connection', limits.admit)
  endUnread(server, REQUEST_MILLISECONDS)
  await openPort(server, { address, port }, { setting: 'listen.metrics', passed: options.passed })
  return {
    async stop() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

/** The same as one of the routes of another listener, for loopback alone. */
export function createMetricsRoute(metrics: Metrics): Middleware<RequestState> {
  return async function metricsRoute(ctx, next) {
    if (ctx.path !== '/metrics' || ctx.method !== 'GET' || !mayRead(ctx.req, null)) return next()
    ctx.state.pattern = '/metrics'
    ctx.res.setHeader('Content-Type', metrics.registry.contentType)
    ctx.body = await metrics.text()
  }
}

function mayRead(request: IncomingMessage, token: string | null): boolean {
  if (isLoopback(request.socket.remoteAddress ?? '')) return true
  if (token === null) return false
  // The header's one form: the scheme, a space, the token.
  const given = Buffer.from(/^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1] ?? '')
  const wanted = Buffer.from(token)
  return given.length === wanted.length && timingSafeEqual(given, wanted)
}
