/**
 * The mail servers of the whole world in one: an SMTP server on loopback that takes all mail and answers like a real
 * one (capture/README.md). 250 comes after the message was handed on; a failure is 451, so the sender keeps the
 * message. Throws at start when the port is taken. RFC 5321.
 */
import { once } from 'node:events'
import { SMTPServer, type SMTPServerDataStream, type SMTPServerOptions, type SMTPServerSession } from 'smtp-server'
import { SMTPConnection } from 'smtp-server/lib/smtp-connection.js'
import { SECOND } from '../base/clock.ts'
import { errorCode } from '../base/errors.ts'
import { readDataInOnePass } from '../mail/smtp-data.ts'
import { createCaptureStages, recipientsOf, type CaptureStages } from './capture-stages.ts'
import type { CaptureReplies } from './replies.ts'
import { createSimulation, type CaptureRefusal, type Simulation, type SimulationOptions } from './simulation.ts'
import { createVisit, type Visit } from './visit.ts'

const MOST_LINES = 200
const MOST_CHARACTERS = 500

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
  /** The lines of the dialogue that belong to it; the last one, the reply to the final dot, comes after handing on. */
  transcript: readonly string[]
}

export interface CaptureServerOptions extends Pick<SimulationOptions, 'clock' | 'logger' | 'inboundAddress'> {
  /** For a message that names none itself; default: none. */
  complaintAddress?: string
  /** How simulated people fetch pixels and links; by default they cannot. */
  visit?: Visit
  /** Left out: messages are taken and dropped. */
  onMail?: (mail: CapturedMail) => Promise<void>
  /** What it was told to answer. */
  replies?: CaptureReplies
}

export const CAPTURE_ADDRESS = '127.0.0.1'
/** Its name in greeting and EHLO, and the MX of every domain. */
export const CAPTURE_HOST_NAME = 'mx.capture.sternpost.test'
/** src/README.md "Bounds": mail of at most 50 MiB, 100 recipients a transaction. */
const MOST_MESSAGE_BYTES = 50 * 1024 * 1024
/** Of a message that nobody keeps: enough to find the header, pixel and links of all but huge ones. */
const MOST_LOOKED_AT = 2 * 1024 * 1024
const MOST_RECIPIENTS = 100
const MOST_CONNECTIONS = 500
/** Idle connections of the sender are cut after this when we stop. */
const CLOSE_TIMEOUT = SECOND / 4

export function createCaptureServer(options: CaptureServerOptions) {
  const { clock, logger, complaintAddress = null, visit = createVisit(), onMail, replies } = options
  const simulation = createSimulation({ ...options, hostName: CAPTURE_HOST_NAME, complaintAddress, visit })
  const stages = createCaptureStages(() => server, replies)
  const transcripts = createSessionTranscripts()
  const handing = { stages, simulation, transcripts, clock, onMail }
  const server = createLibraryServer({
    onConnect(session, answer) {
      stages.guard(session)
      void stages.refusalAt('connect', session).then((refusal) => answer(errorOf(refusal)))
    },
    onMailFrom: (_address, session, answer) =>
      void stages.refusalAt('mail', session).then((refusal) => answer(errorOf(refusal))),
    onRcptTo: ({ address }, session, answer) =>
      void refusalOf(address, session, handing).then((refusal) => answer(errorOf(refusal))),
    onData(stream, session, answer) {
      receive(stream, session, handing)
        .catch((thrown: unknown): CaptureRefusal => {
          logger.error({ err: thrown }, 'captured mail lost')
          return { code: 451, text: '4.3.0 the message could not be kept' }
        })
        .then((refusal) => {
          answer(errorOf(refusal), '2.0.0 kept')
          transcripts.forget(session.id)
        })
    },
    onClose: ({ id }) => transcripts.forget(id),
  })
  if (onMail !== undefined) transcripts.listenTo(server)
  // Connections that break are the sender's business; it sees them itself.
  server.on('error', (error) => logger.debug({ err: error }, 'capture connection failed'))

  return {
    /** Listens on 127.0.0.1; with a wanted port that is taken, on any free one. Resolves with the port. */
    async start(wantedPort: number): Promise<number> {
      try {
        return await listen(server, wantedPort)
      } catch (thrown) {
        if (errorCode(thrown) !== 'EADDRINUSE') throw thrown
        return listen(server, 0)
      }
    },
    stop(): Promise<void> {
      simulation.stop()
      stages.close()
      return new Promise((resolve) => server.close(() => resolve()))
    },
  }
}

interface HandingOn extends Pick<CaptureServerOptions, 'clock'> {
  onMail: CaptureServerOptions['onMail'] | undefined
  stages: CaptureStages
  simulation: Simulation
  transcripts: ReturnType<typeof createSessionTranscripts>
}

/** The rules first, then what the recipient stands for. */
async function refusalOf(
  address: string,
  session: SMTPServerSession,
  { stages, simulation }: HandingOn,
): Promise<CaptureRefusal | null> {
  const refusal = await stages.refusalAt('rcpt', session, [address])
  if (refusal !== null) return refusal
  const answer = simulation.answer(senderOf(session), address)
  if (answer.delayMilliseconds > 0) await stages.wait(answer.delayMilliseconds)
  return answer.refusal
}

async function receive(
  stream: SMTPServerDataStream,
  session: SMTPServerSession,
  { stages, simulation, transcripts, clock, onMail }: HandingOn,
): Promise<CaptureRefusal | null> {
  const [from, to, { remoteAddress }] = [senderOf(session), recipientsOf(session), session]
  const mostBytes = onMail !== undefined ? MOST_MESSAGE_BYTES : simulation.needsBytes(to) ? MOST_LOOKED_AT : 0
  const bytes = await readMessage(stream, mostBytes)
  if (stream.sizeExceeded) return null
  const end = await stages.endAt('dot', to)
  if (end?.kind === 'reply') return end
  await onMail?.({
    receivedAt: clock.now(),
    remoteAddress,
    ehloName: session.hostNameAppearsAs,
    envelope: { from, to },
    bytes,
    transcript: transcripts.linesOf(session.id),
  })
  for (const recipient of to) await simulation.delivered({ from, to: recipient, remoteAddress, bytes })
  // The message is here, and the sender cannot know it.
  return end?.kind === 'close' ? stages.cut(session) : null
}

type Handlers = Pick<SMTPServerOptions, 'onConnect' | 'onMailFrom' | 'onRcptTo' | 'onData' | 'onClose'>

function createLibraryServer(handlers: Handlers): SMTPServer {
  const server = new SMTPServer({
    name: CAPTURE_HOST_NAME,
    banner: 'Sternpost capture server',
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
    ...handlers,
  })
  server.connect = (socket, options) => {
    const connection = new CaptureConnection(server, socket, options)
    server.connections.add(connection)
    connection.on('error', (error: Error) => server.emit('error', error))
    connection.init()
  }
  return server
}

class CaptureConnection extends SMTPConnection {
  override _createParser(): ReturnType<SMTPConnection['_createParser']> {
    const parser = super._createParser()
    readDataInOnePass(parser)
    return parser
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

/** smtp-server takes the reply from these two fields. */
function errorOf(refusal: CaptureRefusal | null): Error | null {
  return refusal === null ? null : Object.assign(new Error(refusal.text), { responseCode: refusal.code })
}

function senderOf({ envelope: { mailFrom } }: SMTPServerSession): string {
  return mailFrom === false ? '' : mailFrom.address
}

/** Reads to the end and keeps the beginning; what is above the size limit is answered with 552 by the library. */
async function readMessage(stream: SMTPServerDataStream, mostBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let left = mostBytes
  for await (const chunk of stream) {
    const kept = Buffer.from(chunk).subarray(0, left)
    left -= kept.length
    if (kept.length > 0) chunks.push(kept)
  }
  return Buffer.concat(chunks)
}

/**
 * What was said on each SMTP connection, from the library's log: `C: ` is the sender, `S: ` the server. A list that was
 * handed out goes on growing until the next message begins, so the reply to the final dot is its last line. Bounded.
 */
function createSessionTranscripts() {
  const bySession = new Map<string, string[]>()
  /** The lines of the message under way. */
  const linesOf = (sessionId: string): string[] => {
    const lines = bySession.get(sessionId) ?? []
    bySession.set(sessionId, lines)
    return lines
  }
  const note = (facts: unknown, side: unknown, text: unknown): void => {
    if ((side !== 'C:' && side !== 'S:') || typeof facts !== 'object' || facts === null || !('cid' in facts)) return
    const lines = linesOf(String(facts.cid))
    for (const line of String(text).split('\r\n')) {
      if (lines.length < MOST_LINES) lines.push(`${side} ${line}`.slice(0, MOST_CHARACTERS))
    }
  }

  return {
    /** Listens to what the server says and hears. */
    listenTo(server: SMTPServer): void {
      const silent = (): void => {}
      server.logger = { trace: silent, debug: note, info: silent, warn: silent, error: silent, fatal: silent }
    },
    linesOf,
    /** The next line belongs to the next message, or the connection is closed. */
    forget: (sessionId: string) => void bySession.delete(sessionId),
  }
}
