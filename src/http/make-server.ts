/**
 * A node:http or node:https server with the limits of src/README.md "Bounds", which does not listen yet. Throws
 * ProcessExit 78 for certificates that cannot be used.
 */
import { createServer, STATUS_CODES, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { Duplex } from 'node:stream'
import { SECOND, type Clock } from '../base/clock.ts'
import { errorCode, ServiceError } from '../base/errors.ts'
import { newIdentifier } from '../base/identifier.ts'
import { readServerCertificates, type ServerCertificates } from '../base/service/server-certificates.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import { answerAcmeHandshakes, type AcmeChallenges } from './acme-handshake.ts'
import { endUnread, REQUEST_EVENTS } from './connection-limits.ts'
import { JSON_CONTENT_TYPE } from './exchange/answer.ts'
import { errorAnswer } from './exchange/error-responses.ts'

export interface HttpSettings extends Pick<ServerSettings, 'console' | 'http' | 'operator' | 'public_url' | 'tls'> {
  api: Pick<ServerSettings['api'], 'batch_recipients'>
}
export type RequestListener = (request: IncomingMessage, response: ServerResponse) => void

const MOST_HEAD_BYTES = 16 * 1024
/** Above the 60 s after which common load balancers close an idle connection: they should be the ones to end it. */
const KEEP_ALIVE_MILLISECONDS = 65 * SECOND

/** Time to read what is answered to a request that cannot be read. */
const LINGER = 10 * SECOND

interface MakeServerOptions {
  settings: HttpSettings
  tls: boolean
  clock: Clock
  /** Of the start; left out: those of the settings. */
  certificates?: ServerCertificates | null | undefined
  acmeChallenges?: AcmeChallenges | null | undefined
}

export interface MadeServer {
  server: Server
  /** For handshakes from now on. */
  setCertificates(certificates: ServerCertificates): void
}

export function makeServer(
  listener: RequestListener,
  { settings, tls, clock, certificates, acmeChallenges }: MakeServerOptions,
): MadeServer {
  const limits = serverLimits(settings)
  const made = tls
    ? makeTlsServer(limits, settings, certificates)
    : { server: createServer(limits), setCertificates: () => {} }
  const { server } = made
  // A client may close its half behind its request and wait for the answer: else what it sent is accepted, and it does
  // not know. The types of node:http do not name the setting.
  Object.assign(server, { httpAllowHalfOpen: true })
  if (tls && acmeChallenges) answerAcmeHandshakes(server, acmeChallenges.handshakes)
  for (const event of REQUEST_EVENTS) server.on(event, listener)
  endUnread(server, settings.http.timeouts.request)
  const turn = createTurns(server)
  server.on('clientError', (error, socket) => turn(socket, () => answerClientError(error, socket, clock.now())))
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

function makeTlsServer(
  limits: ReturnType<typeof serverLimits>,
  { tls, http }: HttpSettings,
  given: MakeServerOptions['certificates'],
): MadeServer {
  let certificates = given ?? readServerCertificates(tls.certificates, tls.min_version)
  const server = createTlsServer({
    ...limits,
    ...certificates.default,
    minVersion: tls.min_version,
    handshakeTimeout: http.timeouts.headers,
    SNICallback: (name, done) => done(null, certificates.contextFor(name)),
  })
  // As node:http does without TLS; but who leaves in the middle of a handshake is gone.
  server.prependListener('secureConnection', (socket) => void (socket.allowHalfOpen = true))
  // Node.js tells of it as of a request that cannot be read; but an answer would wait for the end of the handshake.
  server.prependListener('tlsClientError', (_error, socket) => socket.destroy())
  return {
    server,
    setCertificates(changed) {
      certificates = changed
      server.setSecureContext({ ...changed.default, minVersion: changed.minVersion })
    },
  }
}

interface LastRequest {
  request: IncomingMessage
  response: ServerResponse
  /** Of the request before it. */
  earlier: ServerResponse | undefined
}

/**
 * What cannot be read behind requests that were is answered when their answers are out: else it would be taken for one of
 * theirs. Once for each connection, as node:http tells of it with all that comes.
 */
function createTurns(server: Server): (socket: Duplex, answer: () => void) => void {
  const last = new WeakMap<Duplex, LastRequest>()
  const told = new WeakSet<Duplex>()
  for (const event of REQUEST_EVENTS) {
    server.prependListener(event, (request: IncomingMessage, response: ServerResponse) => {
      const { socket } = request
      last.set(socket, { request, response, earlier: last.get(socket)?.response })
      // What was answered is kept no longer: connections live on.
      response.once('close', () => {
        const newest = last.get(socket)
        if (newest?.response === response) last.delete(socket)
        else if (newest?.earlier === response) newest.earlier = undefined
      })
    })
  }
  return (socket, answer) => {
    if (told.has(socket)) return
    told.add(socket)
    const newest = last.get(socket)
    // Where its own body cannot be read, its handler waits for that, and this is its answer.
    const before = newest?.request.complete === false ? newest.earlier : newest?.response
    if (before === undefined || before.closed) answer()
    else before.once('close', answer)
  }
}

/** What node:http reports, and the status that says it; everything else is 400. */
const KNOWN_ERRORS: Record<string, { status: number; details: string }> = {
  HPE_HEADER_OVERFLOW: { status: 431, details: 'the request head is larger than 16 KiB' },
  ERR_HTTP_REQUEST_TIMEOUT: { status: 408, details: 'the request did not arrive in time' },
}
const MALFORMED = { status: 400, details: 'the request is not valid HTTP' }

/** What node:http cannot read is answered in the envelope too, and the connection ends. Never throws. */
function answerClientError(error: Error, socket: Duplex, now: number): void {
  if (!socket.writable || errorCode(error) === 'ECONNRESET') {
    socket.destroy()
    return
  }
  const { status, details } = KNOWN_ERRORS[errorCode(error)] ?? MALFORMED
  const requestId = newIdentifier('req', now)
  const { body } = errorAnswer(new ServiceError('invalid_request', details, { status }), requestId)
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`,
    `Content-Type: ${JSON_CONTENT_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    'Cache-Control: no-store',
    'Connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy())
  // Whoever reads nothing and goes on sending.
  setTimeout(() => socket.destroy(), LINGER).unref()
}
