/**
 * The mail servers of the whole world in one: an SMTP server on loopback that keeps what arrives.
 *
 * It answers like a real one: simulated recipients as their table says, a message above the size limit with 552, and
 * 250 only after the message was handed on. It offers STARTTLS and no authentication. A failure while handing on is
 * answered with 451, so the sender keeps the message. Throws at start when the port is taken. RFC 5321.
 */
import { once } from 'node:events'
import { SMTPServer } from 'smtp-server'
import type { SMTPServerDataStream, SMTPServerSession } from 'smtp-server'
import type { Clock } from '../base/clock.ts'
import { SECOND } from '../base/clock.ts'
import { errorCode, unreachable } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { behaviourOf } from './simulated-recipients.ts'

/** One transaction as it came over the wire. */
export interface CapturedMail {
  /** Unix milliseconds. */
  receivedAt: number
  /** The sending side: its egress IP and the name it gave in EHLO. */
  remoteAddress: string
  ehloName: string
  envelope: { from: string; to: string[] }
  /** As received, without dot-stuffing. */
  bytes: Buffer
}

export interface CaptureServerOptions {
  /** Its name in greeting and EHLO. */
  hostName: string
  clock: Clock
  logger: Logger
  onMail: (mail: CapturedMail) => Promise<void>
}

export interface CaptureServer {
  /** Listens on 127.0.0.1; with a wanted port that is taken, on any free one. Resolves with the port. */
  start(wantedPort: number): Promise<number>
  stop(): Promise<void>
}

export const CAPTURE_ADDRESS = '127.0.0.1'
/** hardening.md 7: mail of at most 50 MiB, 100 recipients a transaction. */
const MOST_MESSAGE_BYTES = 50 * 1024 * 1024
const MOST_RECIPIENTS = 100
const MOST_CONNECTIONS = 500
/** Idle connections of the sender are cut after this when we stop. */
const CLOSE_TIMEOUT = SECOND / 4

export function createCaptureServer(options: CaptureServerOptions): CaptureServer {
  const { hostName, logger } = options
  const server = new SMTPServer({
    name: hostName,
    banner: 'Posthorn capture server',
    size: MOST_MESSAGE_BYTES,
    rejectOversized: true,
    maxRecipients: MOST_RECIPIENTS,
    maxClients: MOST_CONNECTIONS,
    // STARTTLS with the library's well-known certificate: it protects nothing, and providers that demand TLS get it.
    disabledCommands: ['AUTH'],
    authOptional: true,
    // One connection may carry many messages without ever logging in.
    maxAllowedUnauthenticatedCommands: false,
    disableReverseLookup: true,
    // Else it warns on the terminal about that certificate.
    logger: false,
    // Enhanced codes stand in our own texts, which say more than the library's table.
    hideENHANCEDSTATUSCODES: true,
    closeTimeout: CLOSE_TIMEOUT,
    onRcptTo: ({ address }, _session, answer) => answer(refusalOf(address)),
    onData: (stream, session, answer) => {
      receive(stream, session, options).then(
        () => answer(null, '2.0.0 kept'),
        (thrown: unknown) => {
          logger.error({ err: thrown }, 'captured mail lost')
          answer(smtpError(451, '4.3.0 the message could not be kept'))
        },
      )
    },
  })
  // Connections that break are the sender's business; it sees them itself.
  server.on('error', (error) => logger.debug({ err: error }, 'capture connection failed'))

  return {
    async start(wantedPort) {
      try {
        return await listen(server, wantedPort)
      } catch (thrown) {
        if (errorCode(thrown) !== 'EADDRINUSE') throw thrown
        return listen(server, 0)
      }
    },
    stop: () => new Promise((resolve) => server.close(() => resolve())),
  }
}

async function listen(server: SMTPServer, port: number): Promise<number> {
  // `once` rejects when the listener reports an error first.
  const listening = once(server.server, 'listening')
  server.listen(port, CAPTURE_ADDRESS)
  await listening
  const address = server.server.address()
  if (address === null || typeof address === 'string') throw new Error('the capture server has no port')
  return address.port
}

function refusalOf(recipient: string): Error | null {
  const behaviour = behaviourOf(recipient)
  switch (behaviour.kind) {
    case 'deliver':
      return null
    case 'refuse':
      return smtpError(behaviour.code, behaviour.text)
    default:
      return unreachable(behaviour)
  }
}

/** smtp-server takes the reply from these two fields. */
function smtpError(responseCode: number, text: string): Error {
  return Object.assign(new Error(text), { responseCode })
}

async function receive(
  stream: SMTPServerDataStream,
  session: SMTPServerSession,
  { clock, onMail }: CaptureServerOptions,
): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of stream) {
    // Past the limit it is read to its end and answered with 552 by the library.
    if (!stream.sizeExceeded) chunks.push(Buffer.from(chunk))
  }
  if (stream.sizeExceeded) return
  const { mailFrom, rcptTo } = session.envelope
  await onMail({
    receivedAt: clock.now(),
    remoteAddress: session.remoteAddress,
    ehloName: session.hostNameAppearsAs,
    envelope: { from: mailFrom === false ? '' : mailFrom.address, to: rcptTo.map(({ address }) => address) },
    bytes: Buffer.concat(chunks),
  })
}
