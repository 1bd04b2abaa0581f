/**
 * What both SMTP doors are: listeners with limits, TLS and an orderly stop around smtp-server (inbound/README.md "What
 * smtp-server leaves to us"). Who may do what is the door's own business and comes in as functions.
 *
 * `start` opens all listeners or none; it throws ProcessExit naming the setting.
 */
import { createServer, type Server, type Socket } from 'node:net'
import type { SMTPServer } from 'smtp-server'
import { SECOND, type Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { openPort, type Port } from '../base/service/open-port.ts'
import type { PassedSockets } from '../base/service/passed-sockets.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import { createConnectionAdmission, type ConnectionAdmission } from './connection-admission.ts'
import { createDoorTls, type DoorTls, type ListenerTls, type TlsSettings } from './door-tls.ts'
import { createDialogueServer } from './smtp-dialogue.ts'
import { serverOptions, type SmtpHooks } from './smtp-hooks.ts'

export interface SmtpListener extends Port {
  tls: ListenerTls
}

export interface SmtpLimits {
  /** Bytes. */
  message: number
  recipients: number
  connections: number
  connections_per_address: number
}

interface SmtpDoorOptions {
  hostName: string
  /** Where the listeners stand in the configuration, for errors. */
  setting: string
  limits: SmtpLimits
  tls: TlsSettings
  hooks: SmtpHooks
  badRecipient: { code: number; text: string }
  clock: Clock
  logger: Logger
  /** Sockets that are open already. */
  passed?: PassedSockets | undefined
}

export interface SmtpDoor {
  /** The bound ports, in the order of `listeners`. */
  start(listeners: readonly SmtpListener[]): Promise<number[]>
  /** For handshakes from now on; null: STARTTLS is not offered any more. */
  setCertificates(certificates: ServerCertificates | null): void
  stop(): Promise<void>
}

const STOP_MILLISECONDS = 10 * SECOND

/** The front counts connections and hands them to a server of the library that does not listen itself. */
interface Listening {
  kind: ListenerTls
  front: Server
  smtp: SMTPServer
}

export function createSmtpDoor(options: SmtpDoorOptions): SmtpDoor {
  const { setting, hooks } = options
  const admission = createConnectionAdmission(options.limits)
  const tls = createDoorTls({ setting, settings: options.tls, hasLogin: hooks.logIn !== null })
  const open: Listening[] = []
  let isStopping = false
  const afterMessage = (): void => {
    if (isStopping) setImmediate(() => endIdle(open))
  }

  return {
    async start(listeners) {
      try {
        const ports: number[] = []
        for (const listener of listeners) {
          tls.require(listener.tls)
          const added = makeListening(listener.tls, { options, admission, tls, afterMessage })
          open.push(added)
          ports.push(await openPort(added.front, listener, { setting, passed: options.passed }))
        }
        return ports
      } catch (thrown) {
        for (const { front } of open) front.close()
        throw thrown
      }
    },
    setCertificates(certificates) {
      tls.change(certificates)
      for (const { kind, smtp } of open) smtp.updateSecureContext(tls.optionsFor(kind))
    },
    async stop() {
      isStopping = true
      for (const { front, smtp } of open) {
        front.close()
        for (const handshake of smtp._pendingSockets.values()) handshake.destroy()
      }
      endIdle(open)
      await admission.allReleased(STOP_MILLISECONDS)
      for (const { smtp } of open) for (const connection of smtp.connections) connection._socket.destroy()
    },
  }
}

interface ListeningParts {
  options: SmtpDoorOptions
  admission: ConnectionAdmission
  tls: DoorTls
  afterMessage(): void
}

function makeListening(kind: ListenerTls, { options, admission, tls, afterMessage }: ListeningParts): Listening {
  const { logger, clock, badRecipient } = options
  const smtp = createDialogueServer(
    { ...serverOptions(options, afterMessage), ...tls.optionsFor(kind), secure: kind === 'implicit' },
    { clock, badRecipient, allowsPlainLogin: kind === 'none', onEnd: (socket) => admission.release(socket) },
  )
  // Connections that break are the client's business; it sees them itself.
  const onError = (error: Error): void => logger.debug({ err: error }, 'connection failed')
  smtp.on('error', onError)
  const front = createServer((socket) => {
    socket.on('error', onError)
    if (admission.admit(socket)) smtp.server.emit('connection', socket)
    else refuse(socket, kind)
  })
  return { kind, front, smtp }
}

/** Whoever has no message under way. */
function endIdle(open: readonly Listening[]): void {
  for (const { smtp } of open) {
    for (const connection of smtp.connections) {
      if (connection._dataStream) continue
      connection.send(421, '4.3.2 the server is stopping')
      // Below a handshake the socket is the library's to end.
      if (!connection._upgrading) connection._socket.destroySoon()
    }
  }
}

function refuse(socket: Socket, kind: ListenerTls): void {
  if (kind === 'implicit') {
    socket.destroy()
    return
  }
  socket.write('421 4.7.0 too many connections, try again in a moment\r\n')
  socket.destroySoon()
}
