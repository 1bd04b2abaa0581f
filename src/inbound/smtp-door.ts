/**
 * What both SMTP doors are: listeners with limits, TLS and an orderly stop around smtp-server (inbound/README.md "What
 * smtp-server leaves to us"). Who may do what is the door's own business and comes in as hooks.
 */
import { createServer, type Server, type Socket } from 'node:net'
import type { SMTPServer, SMTPServerOptions, SMTPServerSession } from 'smtp-server'
import { MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { clientKey } from '../base/ip-address.ts'
import { createKeyedLimit } from '../base/keyed-limit.ts'
import type { Logger } from '../base/logger.ts'
import { openPort, type Port } from '../base/service/open-port.ts'
import type { PassedSockets } from '../base/service/passed-sockets.ts'
import type { ServerCertificates } from '../base/service/server-certificates.ts'
import { within } from '../base/within.ts'
import { createDoorTls, type GivenCertificates, type ListenerTls, type TlsSettings } from './door-tls.ts'
import type { ReceivedMessage, ReceiveMessage } from './receive-message.ts'
import { createDialogueServer } from './smtp-dialogue.ts'
import { isSmtpRefusal, temporaryFailure } from './smtp-refusal.ts'

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

/** What every door is given. */
export interface DoorParts {
  settings: { hostname: string; tls: TlsSettings }
  clock: Clock
  logger: Logger
  /** Sockets that are open already. */
  passed?: PassedSockets | undefined
  certificates?: GivenCertificates
}

interface SmtpDoorParts extends DoorParts, SmtpHooks {
  /** Where the listeners stand in the configuration, for errors. */
  setting: string
  limits: SmtpLimits
  badRecipient: { code: number; text: string }
}

/**
 * A door's decisions. A hook answers by resolving and refuses by throwing an SmtpRefusal. Whatever else it throws is a
 * fault of ours: it is logged and answered with a temporary failure (RFC 5321 §4.2.5).
 */
interface SmtpHooks {
  receive: ReceiveMessage
  /** null: there is no AUTH. Resolves with what `session.user` is then; never null. */
  logIn: ((password: string, session: SMTPServerSession) => Promise<object>) | null
  /** Before each mail; what it says in MAIL FROM does not matter to any door. */
  onSender?(session: SMTPServerSession): Promise<void>
  /** `address` has one @, or is `postmaster`; its domain may be in Unicode. */
  onRecipient(address: string, session: SMTPServerSession): Promise<void>
  /** A message that is refused before `onMessage` sees it: for its bytes, its size, or as its client left. */
  onUnreceived?(refusal: Error, session: SMTPServerSession): void
  /** Resolves, after the commit, with the text of the 250. */
  onMessage(message: ReceivedMessage, session: SMTPServerSession): Promise<string>
}

const STOP_MILLISECONDS = 10 * SECOND
const IDLE_MILLISECONDS = MINUTE
const MOST_COMMAND_BYTES = 4_096

/** The front counts connections and hands them to a server of the library that does not listen itself. */
interface Listening {
  kind: ListenerTls
  front: Server
  smtp: SMTPServer
}

export type SmtpDoor = ReturnType<typeof createSmtpDoor>

export function createSmtpDoor(parts: SmtpDoorParts) {
  const { setting, logger, clock, badRecipient, passed } = parts
  const admission = createConnectionAdmission(parts.limits)
  const tls = createDoorTls(setting, parts.settings.tls, parts.logIn !== null, parts.certificates)
  const open: Listening[] = []
  let isStopping = false
  const dialogue = dialogueOptions(parts, () => {
    if (isStopping) setImmediate(() => endIdle(open))
  })
  // Connections that break are the client's business; it sees them itself.
  const onError = (error: Error): void => logger.debug({ err: error }, 'connection failed')

  function makeListening(kind: ListenerTls): Listening {
    const smtp = createDialogueServer(
      { ...dialogue, ...tls.optionsFor(kind), secure: kind === 'implicit' },
      { clock, badRecipient, allowsPlainLogin: kind === 'none', onEnd: admission.release },
    )
    smtp.on('error', onError)
    const front = createServer((socket) => {
      socket.on('error', onError)
      if (admission.admit(socket)) smtp.server.emit('connection', socket)
      else refuse(socket, kind)
    })
    return { kind, front, smtp }
  }

  return {
    /** Opens all listeners or none; returns their ports in this order. Throws ProcessExit naming the setting. */
    async start(listeners: readonly SmtpListener[]): Promise<number[]> {
      try {
        const ports: number[] = []
        for (const listener of listeners) {
          tls.require(listener.tls)
          const added = makeListening(listener.tls)
          open.push(added)
          ports.push(await openPort(added.front, listener, { setting, passed }))
        }
        return ports
      } catch (thrown) {
        for (const { front } of open) front.close()
        throw thrown
      }
    },
    /** For handshakes from now on; null: STARTTLS is not offered any more. */
    setCertificates(certificates: ServerCertificates | null): void {
      tls.change(certificates)
      for (const { kind, smtp } of open) smtp.updateSecureContext(tls.optionsFor(kind))
    },
    async stop(): Promise<void> {
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

/** Whoever has no message under way. */
function endIdle(open: readonly Listening[]): void {
  for (const connection of open.flatMap(({ smtp }) => [...smtp.connections])) {
    if (connection._dataStream) continue
    connection.send(421, '4.3.2 the server is stopping')
    // Below a handshake the socket is the library's to end.
    if (!connection._upgrading) connection._socket.destroySoon()
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

/**
 * How many connections a door has, in all and from one address, and the wait for the last of them. A connection is
 * given back when its socket closes or by `release`, whichever comes first: STARTTLS takes all listeners off the socket
 * it began on.
 */
function createConnectionAdmission(limits: SmtpLimits) {
  const perAddress = createKeyedLimit(limits.connections_per_address)
  const addresses = new Map<Socket, string>()
  let onEmpty = (): void => {}

  /** Of a socket that was not admitted, or was given back, nothing happens. */
  const release = (socket: Socket): void => {
    const address = addresses.get(socket)
    if (address === undefined) return
    addresses.delete(socket)
    perAddress.release(address)
    if (addresses.size === 0) onEmpty()
  }

  return {
    /** False: it is one too many and was not counted. */
    admit(socket: Socket): boolean {
      const address = clientKey(socket.remoteAddress ?? '')
      if (addresses.size >= limits.connections || perAddress.free(address) <= 0) return false
      addresses.set(socket, address)
      perAddress.take(address)
      socket.once('close', () => release(socket))
      return true
    },
    release,
    /** Resolves when there is none left, or after so much time. */
    async allReleased(mostMilliseconds: number): Promise<void> {
      if (addresses.size > 0) await within(new Promise<void>((resolve) => (onEmpty = resolve)), mostMilliseconds)
    },
  }
}

/** The hooks as callbacks of smtp-server; `afterMessage` is called when a message has been answered, well or ill. */
function dialogueOptions(parts: SmtpDoorParts, afterMessage: () => void): SMTPServerOptions {
  const { limits, logger, logIn } = parts
  async function settle<Result>(
    work: Promise<Result> | undefined,
    answer: (refusal: Error | null, result?: Result) => void,
  ): Promise<void> {
    let result: Result | undefined
    try {
      result = await work
    } catch (thrown) {
      if (!isSmtpRefusal(thrown)) logger.error({ err: thrown }, 'smtp command failed')
      return answer(isSmtpRefusal(thrown) ? thrown : temporaryFailure(thrown))
    }
    answer(null, result)
  }
  return {
    name: parts.settings.hostname,
    heloResponse: '%s',
    size: limits.message,
    maxRecipients: limits.recipients,
    maxCommandLength: MOST_COMMAND_BYTES,
    socketTimeout: IDLE_MILLISECONDS,
    disableReverseLookup: true,
    logger: false,
    authMethods: ['PLAIN', 'LOGIN'],
    authOptional: logIn === null,
    authRequiredMessage: '5.7.0 log in first, with an API key as the password',
    // Else 538: where AUTH is not allowed the dialogue answers itself.
    allowInsecureAuth: true,
    onAuth({ password }, session, answer) {
      if (logIn === null) return answer(new Error('there is no login'))
      void settle(logIn(password ?? '', session), (refusal, user) => answer(refusal, { user }))
    },
    onMailFrom: (_address, session, answer) => void settle(parts.onSender?.(session), answer),
    onRcptTo: ({ address }, session, answer) => void settle(parts.onRecipient(address, session), answer),
    onData: (stream, session, answer) => {
      let isReceived = false
      const answered = parts.receive(stream, (message) => {
        isReceived = true
        return parts.onMessage(message, session)
      })
      void settle(answered, (refusal, text) => {
        if (refusal !== null && !isReceived) parts.onUnreceived?.(refusal, session)
        answer(refusal, text)
      }).finally(afterMessage)
    },
  }
}
