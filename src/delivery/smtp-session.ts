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

export interface SessionSettings {
  port: number
  timeouts: {
    connect: number; banner: number; ehlo: number; starttls: number; mail: number; rcpt: number; data: number
    final_dot: number; quit: number
  }
  secureContext: SecureContext
}

export interface SessionTarget {
  host: string
  address: string
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
  send(envelope: SmtpEnvelope, bytes: Buffer): Promise<SendEnd>
  /** Says goodbye; resolves when the connection is closed. */
  quit(): Promise<void>
  /** Closes at once; a message under way ends as lost, or as unanswered when its dot is out. */
  abort(reason: string): void
}

const LONGEST_REPLY_BYTES = 64 * 1024 // hardening.md A22
const LONGEST_RESET = 20 * SECOND // engine.md 10.1

export async function openSession(target: SessionTarget, settings: SessionSettings): Promise<Opened> {
  const { host, address, source } = target
  const timeoutMilliseconds = settings.timeouts.connect
  const connected = await connectFrom({ address, source, port: settings.port, timeoutMilliseconds })
  if (connected.kind === 'connected') return greet(connected.socket, target, settings)
  if (connected.kind === 'source-gone') return connected
  return {
    kind: 'failed',
    failure: { stage: 'connect', code: '4.4.1', reason: connected.reason },
    facts: { host, localAddress: null, remoteAddress: address, tls: null },
  }
}

/** Banner, EHLO and STARTTLS. */
function greet(socket: Socket, target: SessionTarget, settings: SessionSettings): Promise<Opened> {
  const { banner, ehlo, starttls, quit } = settings.timeouts
  const { localAddress = null, remoteAddress = null } = socket
  const facts: ConnectionFacts = { host: target.host, localAddress, remoteAddress, tls: null }
  const longestSetup = banner + 2 * ehlo + 2 * starttls
  const connection = new SMTPConnection({
    connection: socket, host: target.host, name: target.hostname, secure: false,
    requireTLS: target.tls === 'required', ignoreTLS: target.tls === 'none',
    tls: { secureContext: settings.secureContext, rejectUnauthorized: false, ...serverName(target.host) },
    greetingTimeout: banner, connectionTimeout: longestSetup, socketTimeout: Math.max(banner, ehlo, starttls),
    socketCloseTimeout: quit, maxResponseSize: LONGEST_REPLY_BYTES,
  })
  return new Promise((resolve) => {
    const fail = (error: Error): void => {
      clearTimeout(timer)
      const failure = setupFailure(connection, error)
      connection.close()
      resolve({ kind: 'failed', failure, facts })
    }
    const timer = setTimeout(() => fail(new Error(`not ready within ${longestSetup} ms`)), longestSetup)
    // Stays: later errors reach us through the message under way, or show as a destroyed connection.
    connection.on('error', fail)
    connection.connect((error) => {
      if (error !== undefined) return fail(error)
      clearTimeout(timer)
      const wireSocket = connection._socket || socket
      if (wireSocket instanceof TLSSocket) facts.tls = wireSocket.getProtocol()
      resolve({ kind: 'open', session: createSession(connection, wireSocket, { facts, settings }) })
    })
  })
}

/** SNI is the host name; an address literal has none (RFC 6066 §3). */
function serverName(host: string): { servername?: string } {
  return isIP(host) === 0 ? { servername: host } : {}
}

function createSession(
  connection: SMTPConnection,
  socket: Socket,
  { facts, settings }: { facts: ConnectionFacts; settings: SessionSettings },
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
    async send(envelope, bytes) {
      if (!takesUtf8 && !isAscii(envelope.to)) return NO_SMTPUTF8
      begun++
      transaction = beginTransaction({ wire: connection, socket, timeouts, envelope, bytes })
      const end = await transaction.end
      transaction = undefined
      socket.setTimeout(0)
      if (leavesDoubt(end)) isInDoubt = true
      else if (end.kind === 'refused' && isUsable()) isInDoubt = !(await reset(connection))
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

function isAscii(text: string): boolean {
  // Any character that is no printable one of US-ASCII.
  return !/[^ -~]/.test(text)
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
