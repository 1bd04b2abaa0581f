/**
 * One SMTP connection to one host, from one egress IP: connect, banner, EHLO with the IP's host name (HELO on 5xx),
 * STARTTLS by policy (`start-tls.ts`) and EHLO again, messages (`smtp-transaction.ts`), QUIT. Opening resolves with
 * facts and never throws. What the host has sent in plain text behind its 220 to STARTTLS is never read: whoever put it
 * there, it is a failure of the path. RFC 5321 §3, RFC 3207 §4; delivery/README.md "The SMTP session" and "TLS".
 */
import type { Socket } from 'node:net'
import type { SecureContext } from 'node:tls'
import type { ConnectionFacts } from '../../mail/reply/delivery-outcome.ts'
import { readSmtpReply } from '../../mail/reply/smtp-reply.ts'
import type { HostTls } from '../protocol/host-tls.ts'
import type { PathFailure } from '../protocol/try-result.ts'
import { createFlightPermit } from './flight-permit.ts'
import type { RawReply } from './reply-reader.ts'
import { helloName, NO_EXTENSIONS, readExtensions, type SmtpExtensions } from './smtp-extensions.ts'
import { createTransactions } from './smtp-transaction.ts'
import {
  connectFrom,
  createSmtpWire,
  type SmtpWire,
  type WireEnd,
  type WireListener,
  type WireStage,
  type LocalFailure,
} from './smtp-wire.ts'
import { startTls, type TlsTickets } from './start-tls.ts'
import type { ConnectionEnd, SessionJob, TransactionTimeouts } from './transaction-end.ts'
import { connectionLine, type Transcript } from './transcript.ts'

/** Milliseconds. */
export interface SessionTimeouts extends TransactionTimeouts {
  connect: number
  banner: number
  ehlo: number
  starttls: number
  handshake: number
  quit: number
}

export interface SessionSettings {
  timeouts: SessionTimeouts
  secureContext: SecureContext
  tickets: TlsTickets
}

export interface SessionTarget {
  host: string
  address: string
  port: number
  source: string
  /** EHLO name. */
  hostname: string
  tls: HostTls
  /** False: one command at a time, whatever the host announces. */
  mayPipeline: boolean
  /** Messages that may be under way at once, where the host offers CHUNKING and PIPELINING. */
  inFlight: number
  /** It has taken flights lately. */
  knowsFlights: boolean
}

export interface SetupFailure extends Pick<PathFailure, 'stage' | 'code' | 'reason' | 'reply'> {
  /** The connect timeout was over: the host is not there at all. */
  isTimeout: boolean
  /** About TLS, a result type of RFC 8460 §4.3; null: it was not about TLS. */
  tlsResult: string | null
  /** Somebody has put plain text behind the 220 to STARTTLS. */
  isInjection: boolean
}

export type Opened =
  | { kind: 'open'; session: SmtpSession; /** `success`, or a result type of RFC 8460 §4.3. */ tlsResult: string }
  | { kind: 'failed'; failure: SetupFailure; facts: ConnectionFacts }
  | LocalFailure

export interface SmtpSession {
  facts: ConnectionFacts
  extensions: SmtpExtensions
  openedAt: number
  /** False once either side has closed, or after anything that leaves the dialogue in doubt. */
  isUsable(): boolean
  /** True while a message waits for the reply to its final dot, or to its last chunk. */
  isPastDot(): boolean
  /** Messages that it may be given before they end: one is to wait behind those under way. */
  mostTaken(): number
  /** Messages that may be under way at once; 1: it knows no flights. */
  inFlight: number
  /** Why flights are not for this host; null: nothing is wrong. */
  flightProblem(): string | null
  /** Whether the host has taken messages in flights, and nothing went wrong; null: there was none. */
  takesFlights(): boolean | null
  send(job: SessionJob): void
  /** Says goodbye; resolves when the connection is closed. */
  quit(): Promise<void>
  /** Closes at once what has not sent its final dot; what has still waits for its reply. */
  stop(reason: string): void
  /** Resolves when the connection has ended, with what that says of it. */
  ended: Promise<ConnectionEnd>
}

interface Opening {
  target: SessionTarget
  settings: SessionSettings
  /** The dialogue up to the first message is noted there. */
  transcript: Transcript | null
  facts: ConnectionFacts
}

export async function openSession(
  target: SessionTarget,
  settings: SessionSettings,
  transcript: Transcript | null = null,
): Promise<Opened> {
  const { host, address, port, source } = target
  const connected = await connectFrom({ address, source, port, timeoutMilliseconds: settings.timeouts.connect })
  if (connected.kind === 'connected') return greet(connected.socket, { target, settings, transcript })
  if (connected.kind === 'local') return connected
  const { reason, isTimeout } = connected
  transcript?.note(`no connection to ${host} [${address}] from [${source}]: ${reason}`)
  const failure = { ...NO_FAILURE, stage: 'connect' as const, code: '4.4.1', reason, isTimeout }
  return { kind: 'failed', failure, facts: { host, localAddress: null, remoteAddress: address, tls: null } }
}

/** Of a host that says nothing. */
const CODES = { banner: '4.4.1', ehlo: '4.4.2', starttls: '4.7.4' }
const NOT_SUPPORTED = 'starttls-not-supported'
const NO_FAILURE = { reply: null, isTimeout: false, tlsResult: null, isInjection: false }

async function greet(socket: Socket, request: Omit<Opening, 'facts'>): Promise<Opened> {
  const { target, settings, transcript } = request
  const { localAddress = null, remoteAddress = null } = socket
  const facts: ConnectionFacts = { host: target.host, localAddress, remoteAddress, tls: null }
  const opening: Opening = { ...request, facts }
  transcript?.note(connectionLine(facts))
  const dialogue = createOpening(socket, transcript)
  const banner = await dialogue.hear('banner', settings.timeouts.banner)
  if (!isPositive(banner)) return fail(dialogue, opening, failureAt('banner', banner))
  const hello = await sayHello(dialogue, opening)
  if (hello.kind === 'failed') return fail(dialogue, opening, hello.failure)
  const { kind } = target.tls
  const wantsTls = kind !== 'plain' && (kind !== 'opportunistic' || hello.extensions.hasStartTls)
  if (wantsTls) return encrypt(dialogue, opening, hello.extensions)
  return ready(dialogue, opening, hello.extensions, NOT_SUPPORTED)
}

/** `isUnheard`: the connection ended in place of the first reply. */
type Hello =
  { kind: 'ready'; extensions: SmtpExtensions } | { kind: 'failed'; failure: SetupFailure; isUnheard: boolean }

/** A host that knows no EHLO is asked the old way, and has no extensions (RFC 5321 §3.2). */
async function sayHello(dialogue: OpeningDialogue, { target, settings }: Opening): Promise<Hello> {
  const name = helloName(target.hostname)
  const extended = await dialogue.ask(`EHLO ${name}`, 'ehlo', settings.timeouts.ehlo)
  if (extended.kind === 'reply' && isPositive(extended)) {
    return { kind: 'ready', extensions: readExtensions(extended.reply.text) }
  }
  const isRefused = extended.kind === 'reply' && extended.reply.code >= 500
  if (!isRefused) return { kind: 'failed', failure: failureAt('ehlo', extended), isUnheard: isLost(extended) }
  const plain = await dialogue.ask(`HELO ${name}`, 'ehlo', settings.timeouts.ehlo)
  if (!isPositive(plain)) return { kind: 'failed', failure: failureAt('ehlo', plain), isUnheard: false }
  return { kind: 'ready', extensions: NO_EXTENSIONS }
}

async function encrypt(dialogue: OpeningDialogue, opening: Opening, extensions: SmtpExtensions): Promise<Opened> {
  const { target, settings, transcript, facts } = opening
  const { timeouts, secureContext, tickets } = settings
  if (!extensions.hasStartTls) return fail(dialogue, opening, noTls('the host does not offer STARTTLS', NOT_SUPPORTED))
  const answer = await dialogue.ask('STARTTLS', 'starttls', timeouts.starttls)
  if (answer.kind === 'end' || answer.reply.code !== 220) return fail(dialogue, opening, failureAt('starttls', answer))
  if (dialogue.problem() !== undefined || dialogue.hasUnread()) {
    const failure = noTls('plain text behind the answer to STARTTLS', 'validation-failure')
    return fail(dialogue, opening, { ...failure, isInjection: true })
  }
  const { host, tls } = target
  const socket = dialogue.detach()
  const { handshake: timeoutMilliseconds } = timeouts
  const encrypted = await startTls({ socket, host, tls, secureContext, tickets, timeoutMilliseconds })
  if (encrypted.kind === 'failed') return fail(dialogue, opening, noTls(encrypted.reason, encrypted.result))
  facts.tls = encrypted.facts
  const { protocol, cipher, problem } = encrypted.facts
  const doubt = problem === null ? '' : `; the certificate is not verified: ${problem}`
  transcript?.note(`encrypted: ${protocol} with ${cipher}${doubt}`)
  const secured = createOpening(encrypted.socket, transcript)
  const hello = await sayHello(secured, opening)
  if (hello.kind === 'failed') {
    // By TLS 1.3 our side of the handshake has ended before the host judges it (RFC 8446 §4.4.4).
    const isHandshake = hello.isUnheard && tls.kind === 'opportunistic'
    if (isHandshake) tickets.delete(host)
    return fail(secured, opening, isHandshake ? noTls(hello.failure.reason, 'validation-failure') : hello.failure)
  }
  return ready(secured, opening, hello.extensions, encrypted.result)
}

function noTls(reason: string, tlsResult: string): SetupFailure {
  return { ...NO_FAILURE, stage: 'starttls', code: CODES.starttls, reason, tlsResult }
}

function ready(dialogue: OpeningDialogue, opening: Opening, extensions: SmtpExtensions, tlsResult: string): Opened {
  const end = dialogue.problem()
  // It came in one with the answer to EHLO.
  if (end !== undefined) return fail(dialogue, opening, failureAt('ehlo', { kind: 'end', end }))
  const used = opening.target.mayPipeline ? extensions : { ...extensions, isPipelining: false }
  return { kind: 'open', session: createSession(dialogue, opening, used), tlsResult }
}

function createSession(dialogue: OpeningDialogue, opening: Opening, extensions: SmtpExtensions): SmtpSession {
  const { facts, target, settings } = opening
  const { timeouts } = settings
  const { promise: ended, resolve } = Promise.withResolvers<ConnectionEnd>()
  const permit = createFlightPermit(extensions, target)
  const wire = dialogue.handOver({
    onEnd: (end) => resolve(transactions.settle(end)),
    onRead: () => transactions.onRead(),
  })
  const transactions = createTransactions(wire, { extensions, timeouts, permit })
  let isLeaving = false
  return {
    facts,
    extensions,
    ended,
    openedAt: performance.now(),
    isUsable: () => wire.isOpen() && !isLeaving && !transactions.isStopped(),
    isPastDot: transactions.isPastDot,
    mostTaken: transactions.mostTaken,
    inFlight: permit.most(),
    flightProblem: permit.problem,
    takesFlights: permit.takesFlights,
    send: transactions.send,
    async quit() {
      // Once it is stopped the host may be in the middle of a body.
      if (wire.isOpen() && !isLeaving && !transactions.isStopped()) {
        isLeaving = true
        const answer = (): void => wire.end('goodbye')
        wire.say('QUIT\r\n', [{ stage: 'quit', limitMilliseconds: timeouts.quit, transcript: null, answer }])
      }
      await ended
    },
    stop(reason) {
      if (transactions.stop(reason)) wire.end(reason)
    },
  }
}

function fail(dialogue: OpeningDialogue, { facts, transcript }: Opening, failure: SetupFailure): Opened {
  transcript?.note(`${failure.stage} failed: ${failure.reason}`)
  dialogue.close()
  return { kind: 'failed', failure, facts }
}

/** What a refusal or an end means before MAIL: none of them is ever about the message. */
function failureAt(stage: keyof typeof CODES, answer: OpeningAnswer): SetupFailure {
  const reply = answer.kind === 'reply' ? (readSmtpReply(answer.reply.text) ?? null) : answer.end.reply
  const reason = answer.kind === 'end' ? answer.end.reason : (reply?.text ?? answer.reply.text)
  const code = stage !== 'starttls' && reply !== null ? '4.3.2' : CODES[stage]
  const tlsResult = stage === 'starttls' ? NOT_SUPPORTED : null
  return { ...NO_FAILURE, stage, code, reason, reply, tlsResult }
}

function isPositive(answer: OpeningAnswer): boolean {
  return answer.kind === 'reply' && answer.reply.code >= 200 && answer.reply.code < 300
}

/** Without a word: neither a reply nor a silence. */
function isLost(answer: OpeningAnswer): boolean {
  return answer.kind === 'end' && answer.end.reply === null && !answer.end.isTimeout && !answer.end.isOutOfStep
}

type OpeningAnswer = { kind: 'reply'; reply: RawReply } | { kind: 'end'; end: WireEnd }

/**
 * The dialogue before the first message, one question at a time. Never rejects: the end of the connection is an answer.
 */
type OpeningDialogue = ReturnType<typeof createOpening>

function createOpening(socket: Socket, transcript: Transcript | null) {
  let ended: WireEnd | undefined
  let onAnswer: ((answer: OpeningAnswer) => void) | undefined
  let listener: WireListener = {
    onRead: () => {},
    onEnd(end) {
      ended = end
      onAnswer?.({ kind: 'end', end })
    },
  }
  const wire = createSmtpWire(socket, { onEnd: (end) => listener.onEnd(end), onRead: () => listener.onRead() })

  function wait(stage: WireStage, limitMilliseconds: number, line: string | null): Promise<OpeningAnswer> {
    if (ended !== undefined) return Promise.resolve({ kind: 'end', end: ended })
    return new Promise((resolve) => {
      onAnswer = resolve
      const answer = (reply: RawReply): void => resolve({ kind: 'reply', reply })
      const expectation = { stage, limitMilliseconds, transcript, answer }
      if (line === null) return wire.say('', [expectation])
      transcript?.said(line)
      wire.say(`${line}\r\n`, [expectation])
    })
  }

  return {
    /** Waits for what the host says by itself. */
    hear: (stage: WireStage, limitMilliseconds: number) => wait(stage, limitMilliseconds, null),
    ask: (line: string, stage: WireStage, limitMilliseconds: number) => wait(stage, limitMilliseconds, line),
    /** How the connection has ended; undefined: it has not. */
    problem: () => ended,
    /** A reply has begun that nobody asked for. */
    hasUnread: wire.hasUnread,
    close: wire.close,
    detach: wire.detach,
    /** From now on what happens is told there. */
    handOver(next: WireListener): SmtpWire {
      listener = next
      return wire
    },
  }
}
