/**
 * One SMTP connection to one host, from one egress IP: open it, send messages over it, close it.
 *
 *  1 connect from the egress IP (`connect-from.ts`)      3 STARTTLS by policy, EHLO again
 *  2 banner, EHLO with the IP's host name                4 MAIL RCPT DATA, body, dot (`smtp-transaction.ts`); RSET
 *
 * Opening and sending resolve with facts and never throw: which stage ended how, with the reply as it was given
 * (`read-smtp-error.ts`). After anything but a clean end the session is not usable any more.
 * RFC 5321 §3, RFC 3207; engine.md 10 and 21.
 */
import { isIP } from 'node:net'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { SecureContext } from 'node:tls'
import SMTPConnection from 'nodemailer/lib/smtp-connection'
import { SECOND } from '../base/clock.ts'
import type { ConnectionFacts } from '../mail/delivery-outcome.ts'
import { connectFrom } from './connect-from.ts'
import { setupFailure } from './read-smtp-error.ts'
import type { SendEnd, SetupFailure } from './read-smtp-error.ts'
import { beginTransaction } from './smtp-transaction.ts'
import type { SmtpEnvelope, Transaction } from './smtp-transaction.ts'
import { connectionLine, reuseLine } from './transcript.ts'
import type { Transcript } from './transcript.ts'

export interface SessionSettings {
  timeouts: {
    connect: number; banner: number; ehlo: number; starttls: number; mail: number; rcpt: number; data: number
    final_dot: number; quit: number
  }
  secureContext: SecureContext
}

export interface SessionTarget {
  host: string
  address: string
  port: number
  source: string
  /** EHLO name. */
  hostname: string
  tls: 'required' | 'when-announced' | 'none'
}

export type Opened =
  | { kind: 'open'; session: SmtpSession }
  | { kind: 'failed'; failure: SetupFailure; facts: ConnectionFacts }
  | { kind: 'source-gone'; reason: string }

export interface SmtpSession {
  facts: ConnectionFacts
  openedAt: number
  /** Messages that were begun on this connection. */
  begun(): number
  /** False once either side has closed, or after anything that leaves the dialogue in doubt. */
  isUsable(): boolean
  /** True while a message waits for the reply to its final dot. */
  isPastDot(): boolean
  /** `transcript`: the dialogue is noted there, and on a kept connection a line that says so. */
  send(envelope: SmtpEnvelope, bytes: Buffer, transcript?: Transcript | null): Promise<SendEnd>
  /** Says goodbye; resolves when the connection is closed. */
  quit(): Promise<void>
  /** Closes at once; a message under way ends as lost, or as unanswered when its dot is out. */
  abort(reason: string): void
}

const LONGEST_REPLY_BYTES = 64 * 1024 // hardening.md A22
/** What the library has to say beside the dialogue. */
const SILENT = { info: () => {}, warn: () => {}, error: () => {} }
const LONGEST_RESET = 20 * SECOND // engine.md 10.1

/** `transcript`: the dialogue up to the first message is noted there. */
export async function openSession(
  target: SessionTarget,
  settings: SessionSettings,
  transcript: Transcript | null = null,
): Promise<Opened> {
  const { host, address, port, source } = target
  const connected = await connectFrom({ address, source, port, timeoutMilliseconds: settings.timeouts.connect })
  if (connected.kind === 'connected') return greet(connected.socket, target, { ...settings, transcript })
  if (connected.kind === 'source-gone') return connected
  transcript?.note(`no connection to ${host} [${address}] from [${source}]: ${connected.reason}`)
  return {
    kind: 'failed',
    failure: { stage: 'connect', code: '4.4.1', reason: connected.reason },
    facts: { host, localAddress: null, remoteAddress: address, tls: null },
  }
}

/** Banner, EHLO and STARTTLS. */
function greet(
  socket: Socket,
  target: SessionTarget,
  settings: SessionSettings & { transcript: Transcript | null },
): Promise<Opened> {
  const { banner, ehlo, starttls, quit } = settings.timeouts
  const { localAddress = null, remoteAddress = null } = socket
  const facts: ConnectionFacts = { host: target.host, localAddress, remoteAddress, tls: null }
  const longestSetup = banner + 2 * ehlo + 2 * starttls
  const listener = createListener(settings.transcript, () => encryptionOf(connection))
  settings.transcript?.note(connectionLine(facts))
  const connection = new SMTPConnection({
    connection: socket, host: target.host, name: target.hostname, secure: false,
    requireTLS: target.tls === 'required', ignoreTLS: target.tls === 'none',
    tls: { secureContext: settings.secureContext, rejectUnauthorized: false, ...serverName(target.host) },
    greetingTimeout: banner, connectionTimeout: longestSetup, socketTimeout: Math.max(banner, ehlo, starttls),
    socketCloseTimeout: quit, maxResponseSize: LONGEST_REPLY_BYTES, ...listener.options,
  })
  return new Promise((resolve) => {
    let isOpen = false
    const fail = (error: Error): void => {
      if (isOpen) return
      clearTimeout(timer)
      const failure = setupFailure(connection, error)
      settings.transcript?.note(`${failure.stage} failed: ${failure.reason}`)
      connection.close()
      resolve({ kind: 'failed', failure, facts })
    }
    const timer = setTimeout(() => fail(new Error(`not ready within ${longestSetup} ms`)), longestSetup)
    // Stays: later errors reach us through the message under way, or show as a destroyed connection.
    connection.on('error', fail)
    connection.connect((error) => {
      if (error !== undefined) return fail(error)
      isOpen = true
      clearTimeout(timer)
      const wireSocket = connection._socket || socket
      if (wireSocket instanceof TLSSocket) facts.tls = wireSocket.getProtocol()
      resolve({ kind: 'open', session: createSession(connection, wireSocket, { facts, settings, listener }) })
    })
  })
}

interface Listener {
  /** What the library is given so that it tells what it says and hears. */
  options: { transactionLog?: true; logger?: { debug: (entry: { tnx?: string }, line: string) => void } }
  /** Where the dialogue goes from now on. */
  use(transcript: Transcript | null): void
}

/** A session is opened with a transcript or never has one: what the library is not asked to tell costs nothing. */
function createListener(first: Transcript | null, encryption: () => string | null): Listener {
  if (first === null) return { options: {}, use: () => {} }
  let transcript: Transcript | null = first
  let isEncrypted = false
  const debug = (entry: { tnx?: string }, line: string): void => {
    const cipher = isEncrypted ? null : encryption()
    if (cipher !== null) {
      isEncrypted = true
      transcript?.note(cipher)
    }
    if (entry.tnx === 'client') transcript?.said(line)
    else if (entry.tnx === 'server') transcript?.heard(line)
  }
  return {
    options: { transactionLog: true, logger: { debug, ...SILENT } },
    use(next) {
      transcript = next
    },
  }
}

/** Protocol and cipher, once the handshake is done; null before, and in plain text. */
function encryptionOf({ secure, _socket: socket }: SMTPConnection): string | null {
  if (!secure || !(socket instanceof TLSSocket)) return null
  return `encrypted: ${socket.getProtocol()} with ${socket.getCipher().name}`
}

/** SNI is the host name; an address literal has none (RFC 6066 §3). */
function serverName(host: string): { servername?: string } {
  return isIP(host) === 0 ? { servername: host } : {}
}

function createSession(
  connection: SMTPConnection,
  socket: Socket,
  { facts, settings, listener }: { facts: ConnectionFacts; settings: SessionSettings; listener: Listener },
): SmtpSession {
  const { timeouts } = settings
  // The last reply was the one to EHLO: this line of it announces that non-ASCII addresses are taken (RFC 6531 §3.1).
  const takesUtf8 = /^250[ -]SMTPUTF8\b/im.test(String(connection.lastServerResponse))
  let transaction: Transaction | undefined
  let begun = 0
  let isInDoubt = false
  const isUsable = (): boolean => !isInDoubt && !connection.destroyed && socket.writable
  // Between messages the path's own idle time rules, not the library's.
  socket.setTimeout(0)

  return {
    facts,
    openedAt: Date.now(),
    begun: () => begun,
    isUsable,
    isPastDot: () => transaction?.isDotSent() === true,
    async send(envelope, bytes, transcript = null) {
      if (!takesUtf8 && envelope.needsUtf8) return NO_SMTPUTF8
      if (begun > 0) transcript?.note(reuseLine(facts, begun))
      listener.use(transcript)
      begun++
      transaction = beginTransaction({ wire: connection, socket, timeouts, envelope, bytes, transcript })
      const end = await transaction.end
      transaction = undefined
      socket.setTimeout(0)
      if ('reason' in end) transcript?.note(end.reason)
      if (leavesDoubt(end)) isInDoubt = true
      else if (end.kind === 'refused' && isUsable()) isInDoubt = !(await reset(connection))
      listener.use(null)
      return end
    },
    quit: () => sayGoodbye(connection, isUsable(), timeouts.quit),
    abort(reason) {
      isInDoubt = true
      transaction?.giveUp(reason)
      connection.close()
      socket.destroy()
    },
  }
}

const NO_SMTPUTF8: SendEnd = {
  kind: 'unacceptable', cause: 'not_ascii', reason: 'the receiving host takes only addresses in US-ASCII (no SMTPUTF8)',
}

/** 421 announces the end of the connection, whatever it answers (RFC 5321 §3.8). */
function leavesDoubt(end: SendEnd): boolean {
  if (end.kind === 'refused') return end.reply.code === 421
  return end.kind === 'lost' || end.kind === 'unanswered'
}

/** Ends the transaction that the server still holds open (engine.md 21); false when the connection is of no use. */
function reset(connection: SMTPConnection): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve(false), LONGEST_RESET)
    const finish = (isDone: boolean): void => {
      clearTimeout(timer)
      connection.off('end', fail)
      resolve(isDone)
    }
    // A connection that ends here never answers the callback.
    const fail = (): void => finish(false)
    connection.once('end', fail)
    connection.reset((error) => finish(error === null))
  })
}

function sayGoodbye(connection: SMTPConnection, isUsable: boolean, timeoutMilliseconds: number): Promise<void> {
  if (connection.destroyed || !isUsable) {
    connection.close()
    return Promise.resolve()
  }
  return new Promise((resolve) => {
    const timer = setTimeout(() => connection.close(), timeoutMilliseconds)
    connection.once('end', () => {
      clearTimeout(timer)
      resolve()
    })
    connection.quit()
  })
}
