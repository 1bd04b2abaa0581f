/**
 * A node:http or node:https server with the limits of src/README.md "Bounds", which does not listen yet.
 *
 * Requests with `Expect` arrive at the same listener, which decides when to invite the body. Throws ProcessExit 78 for
 * certificates that cannot be used.
 */
import { createServer } from 'node:http'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { Clock } from '../base/clock.ts'
import { SECOND } from '../base/clock.ts'
import { readServerCertificates } from '../base/service/server-certificates.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import { answerClientError } from './exchange/client-error.ts'

export interface HttpSettings extends Pick<ServerSettings, 'http' | 'operator' | 'public_url' | 'tls'> {
  api: Pick<ServerSettings['api'], 'batch_recipients'>
}
export type RequestListener = (request: IncomingMessage, response: ServerResponse) => void

const MOST_HEAD_BYTES = 16 * 1024
/** Above the 60 s after which common load balancers close an idle connection: they should be the ones to end it. */
const KEEP_ALIVE_MILLISECONDS = 65 * SECOND

export interface MakeServerOptions {
  settings: HttpSettings
  tls: boolean
  clock: Clock
}

export interface MadeServer {
  server: Server
  /** For handshakes from now on. */
  setCertificates(certificates: ServerCertificates): void
}

export function makeServer(listener: RequestListener, { settings, tls, clock }: MakeServerOptions): MadeServer {
  const limits = serverLimits(settings)
  const made = tls ? makeTlsServer(limits, settings) : { server: createServer(limits), setCertificates: () => {} }
  const { server } = made
  for (const event of ['request', 'checkContinue', 'checkExpectation']) server.on(event, listener)
  server.on('clientError', (error, socket) => answerClientError(error, socket, clock.now()))
  return made
}

function serverLimits({ http }: HttpSettings) {
  const { headers, request } = http.timeouts
  return {
    maxHeaderSize: MOST_HEAD_BYTES,
    headersTimeout: Math.min(headers, request),
    requestTimeout: request,
    connectionsCheckingInterval: SECOND,
    keepAliveTimeout: KEEP_ALIVE_MILLISECONDS,
    // A missing Host is answered by us, in the envelope.
    requireHostHeader: false,
  }
}

function makeTlsServer(limits: ReturnType<typeof serverLimits>, { tls, http }: HttpSettings): MadeServer {
  let certificates = readServerCertificates(tls.certificates, tls.min_version)
  const server = createTlsServer({
    ...limits,
    ...certificates.default,
    minVersion: tls.min_version,
    handshakeTimeout: http.timeouts.headers,
    SNICallback: (name, done) => done(null, certificates.contextFor(name)),
  })
  return {
    server,
    setCertificates(changed) {
      certificates = changed
      server.setSecureContext({ ...changed.default, minVersion: changed.minVersion })
    },
  }
}
