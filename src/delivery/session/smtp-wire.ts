/**
 * One socket as a dialogue: commands out, replies in, each reply to the command it answers, each with its time limit. A
 * reply answers a command only when that had been written before the reply came in: whatever comes earlier is a host
 * out of step, and ends the wire like a lost connection, a silence over the limit, or a malformed reply. The end is
 * told once, with the stage that waited; nothing is read or written afterwards. Behind a 421 it can be read on for a
 * moment, until the host closes: half a reply is out of step then. A limit is for the whole answer, so a host that drips
 * gains nothing. Never throws. RFC 5321 §4.2, RFC 2920; delivery/README.md "The SMTP session" and "Stages".
 */
import { connect, type Socket } from 'node:net'
import { errorCode, errorText } from '../../base/errors.ts'
import { canonicalIp } from '../../base/ip-address.ts'
import { readSmtpReply, type SmtpReply } from '../../mail/reply/smtp-reply.ts'
import type { ReturnCause } from '../protocol/try-result.ts'
import { createReplyReader, type RawReply, type ReplyReader } from './reply-reader.ts'
import { oneLine, type Transcript } from './transcript.ts'

/** The host ends the connection, whatever it answers (RFC 5321 §3.8). */
export const CLOSING_CODE = 421

const NOTHING: readonly Buffer[] = []

/** What a reply is waited for. */
export type WireStage = 'banner' | 'ehlo' | 'starttls' | 'mail' | 'rcpt' | 'data' | 'dot' | 'bdat' | 'rset' | 'quit'

export interface Expectation {
  stage: WireStage
  limitMilliseconds: number
  transcript: Transcript | null
  answer: (reply: RawReply) => void
}

export interface WireEnd {
  /** The command that waited for its reply, or null. */
  stage: WireStage | null
  reason: string
  /** What the host said out of turn: of interest when it is a 421. */
  reply: SmtpReply | null
  isTimeout: boolean
  /** What the host sent does not fit what was said: none of its replies may be believed. A 421 fits everywhere. */
  isOutOfStep: boolean
}

export interface WireListener {
  onEnd: (end: WireEnd) => void
  /** All replies of the bytes that came at once have been taken, and the wire is open still. */
  onRead: () => void
}

export type SmtpWire = ReturnType<typeof createSmtpWire>

export function createSmtpWire(socket: Socket, { onEnd, onRead }: WireListener) {
  const expected: Expectation[] = []
  /** Replies that may be taken: their commands were written before the bytes at hand came in. */
  let answerable = 0
  let isOpen = true
  let closing: string | null = null // why the host is to close; nothing is written any more
  const deadline = createDeadline((limit) => end(limit, { isTimeout: true }))
  const onMalformed = (reason: string): void => end(reason, { isOutOfStep: true })
  const reader: ReplyReader = createReplyReader({ onReply: receive, onMalformed })

  function receive(reply: RawReply): void {
    if (!isOpen) return
    const expectation = answerable > 0 ? expected.shift() : undefined
    if (expectation === undefined) return end(`reply before its command: ${reply.text}`, outOfTurn(reply))
    answerable--
    expectation.transcript?.heard(reply.text)
    if (closing === null) deadline.watch(expected[0])
    expectation.answer(reply)
    if (closing !== null && expected.length === 0) end(closing)
  }

  function end(reason: string, more: Partial<WireEnd> = {}): void {
    if (!isOpen) return
    close()
    onEnd({ ...IN_STEP, ...more, stage: expected[0]?.stage ?? null, reason: oneLine(reason) })
  }

  function close(): void {
    isOpen = false
    deadline.stop()
    socket.destroy()
  }

  const onData = (bytes: Buffer): void => {
    answerable = expected.length
    reader.push(bytes)
    if (isOpen) onRead()
  }
  const onGone = (reason: string): void => end(closing ?? reason, { isOutOfStep: closing !== null && reader.hasRest() })
  const onOver = (): void => onGone('the host closed the connection')
  socket.on('data', onData).on('end', onOver).on('close', onOver)
  socket.on('error', (error) => onGone(errorText(error)))

  return {
    /** In one piece. Replies come in the order of `expectations`; without lines: of the banner, which nobody asks for. */
    say(lines: string, expectations: Expectation[], { before = NOTHING, after = NOTHING } = {}): void {
      if (!isOpen) return
      const isFirst = expected.length === 0
      expected.push(...expectations)
      if (lines !== '') writeTogether(socket, [...before, lines, ...after])
      if (isFirst) deadline.watch(expected[0])
    },
    /** Writes bytes of a body; `written` is called when they have left. */
    write(bytes: Buffer, written: () => void): void {
      if (!isOpen) return
      socket.write(bytes, (error) => {
        if (isOpen && (error === null || error === undefined)) written()
      })
    },
    /** While no reply is waited for: the wire ends unless this is called again, or a command said. */
    limit: (milliseconds: number, what: string): void => void (isOpen && deadline.set(milliseconds, what)),
    /** Nothing is written any more: the host has said that it closes. Replies are heard until all have come, or it has. */
    awaitClose(milliseconds: number, reason: string): void {
      if (closing === null) deadline.set(milliseconds, 'the close behind its 421')
      closing ??= reason
    },
    isOpen: () => isOpen && closing === null,
    hasUnread: () => reader.hasRest(),
    /** Ends it from our side and tells so, where `close` tells nobody; nothing, when it has ended. */
    end: (reason: string, isOutOfStep = false) => end(reason, { isOutOfStep }),
    close,
    /** Gives the socket away, for TLS, and tells nothing of it any more. */
    detach(): Socket {
      isOpen = false
      deadline.stop()
      socket.off('data', onData).off('end', onOver).off('close', onOver)
      return socket
    },
  }
}

/**
 * Of commands in one write: a host may hold back replies until those behind them are there (RFC 2920 §3.2), so none is
 * waited for less long than those.
 */
export function answeredTogether(expectations: readonly Expectation[]): Expectation[] {
  return expectations.map((expectation, index) => ({
    ...expectation,
    limitMilliseconds: Math.max(...expectations.slice(index).map(({ limitMilliseconds }) => limitMilliseconds)),
  }))
}

const IN_STEP = { reply: null, isTimeout: false, isOutOfStep: false }

/** Nobody had asked for it. */
function outOfTurn({ code, text }: RawReply): Partial<WireEnd> {
  return { reply: readSmtpReply(text) ?? null, isOutOfStep: code !== CLOSING_CODE }
}

function writeTogether(socket: Socket, pieces: readonly (Buffer | string)[]): void {
  if (pieces.length > 1) socket.cork()
  for (const piece of pieces) socket.write(piece)
  if (pieces.length > 1) socket.uncork()
}

/** One timer serves all limits: it is set anew only when it rings, or for a limit that ends sooner. */
function createDeadline(onOver: (limit: string) => void) {
  let deadline = Infinity
  let limit = ''
  let timer: NodeJS.Timeout | undefined
  let timerAt = Infinity

  function startTimer(): void {
    timerAt = deadline
    timer = setTimeout(ring, Math.ceil(deadline - performance.now()))
  }

  /** Earlier than the deadline, when that has moved since. */
  function ring(): void {
    timerAt = Infinity
    if (deadline === Infinity) return
    if (deadline > performance.now()) startTimer()
    else onOver(limit)
  }

  function set(milliseconds: number, what: string): void {
    deadline = performance.now() + milliseconds
    limit = `${what}: nothing within ${milliseconds} ms`
    if (deadline >= timerAt) return
    clearTimeout(timer)
    startTimer()
  }

  return {
    set,
    /** The reply that comes next, if one does. */
    watch(next: Expectation | undefined): void {
      if (next === undefined) deadline = Infinity
      else set(next.limitMilliseconds, `reply to ${NAMES[next.stage]}`)
    },
    stop: () => clearTimeout(timer),
  }
}

const NAMES: Record<WireStage, string> = {
  banner: 'the connection',
  ehlo: 'EHLO',
  starttls: 'STARTTLS',
  mail: 'MAIL',
  rcpt: 'RCPT',
  data: 'DATA',
  dot: 'the final dot',
  bdat: 'BDAT',
  rset: 'RSET',
  quit: 'QUIT',
}

type Connected =
  { kind: 'connected'; socket: Socket } | { kind: 'failed'; reason: string; isTimeout: boolean } | LocalFailure

/** This machine could not make the connection, whatever its host is like. */
export interface LocalFailure {
  kind: 'local'
  why: Extract<ReturnCause, 'source-gone' | 'no-socket'>
  reason: string
}

type ConnectRequest = { address: string; port: number; source: string; timeoutMilliseconds: number }

/**
 * Opens a TCP connection that leaves from one given address, or none at all. Never throws. The address is bound before
 * connecting and read back afterwards: mail must not leave from another source than the chosen one. An address this
 * machine does not have any more is a result of its own, and so is a lack of sockets or ports: neither says anything of
 * the host. delivery/README.md "The SMTP session".
 */
export function connectFrom(request: ConnectRequest): Promise<Connected> {
  return new Promise((resolve) => {
    const { address: host, port, source: localAddress, timeoutMilliseconds } = request
    const socket = connect({ host, port, localAddress, autoSelectFamily: false, noDelay: true })
    const finish = (result: Connected): void => {
      clearTimeout(timer)
      socket.removeAllListeners()
      if (result.kind !== 'connected') socket.on('error', ignoreLateError).destroy()
      resolve(result)
    }
    const reason = `no answer within ${timeoutMilliseconds} ms`
    const timer = setTimeout(() => finish({ kind: 'failed', reason, isTimeout: true }), timeoutMilliseconds)
    socket.once('connect', () => finish(checkSource(socket, request.source)))
    socket.once('error', (error) => finish(judgeError(error)))
  })
}

function checkSource(socket: Socket, source: string): Connected {
  const used = canonicalIp(socket.localAddress ?? '')
  if (used === canonicalIp(source)) return { kind: 'connected', socket }
  return {
    kind: 'local',
    why: 'source-gone',
    reason: `the socket left from ${used ?? 'no address'} instead of ${source}`,
  }
}

/** No descriptor, no memory, or no port is free: connect(2), bind(2), socket(2). */
const NO_SOCKET = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM', 'EADDRINUSE', 'EADDRNOTAVAIL', 'EAGAIN'])

function judgeError(error: Error): Connected {
  const [code, reason] = [errorCode(error) ?? '', errorText(error)]
  const isBindError = 'syscall' in error && error.syscall === 'bind'
  if (isBindError && code === 'EADDRNOTAVAIL') return { kind: 'local', why: 'source-gone', reason }
  if (NO_SOCKET.has(code)) return { kind: 'local', why: 'no-socket', reason }
  return { kind: 'failed', reason, isTimeout: code === 'ETIMEDOUT' }
}

/** A socket given up may still report why; nobody waits for that. */
export function ignoreLateError(): void {}
