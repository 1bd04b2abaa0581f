/**
 * One message over an open SMTP connection: MAIL, RCPT, DATA, body and dot, each with its limit.
 *
 * Resolves once with how it ended; never throws. It knows by itself whether the final dot may have left, and `giveUp`
 * ends it from outside (a limit, a stop). RFC 5321 §4.5.3.2; engine.md 10.1 and 21.
 */
import type { Socket } from 'node:net'
import { Readable } from 'node:stream'
import { MINUTE, SECOND } from '../base/clock.ts'
import { readSendError, readSendReply } from './read-smtp-error.ts'
import type { SendEnd, SendProgress } from './read-smtp-error.ts'
import type { Transcript } from './transcript.ts'

export interface SmtpEnvelope {
  from: string
  to: string
  /** Comes back in a delivery status notification (RFC 3461 §4.4). */
  envelopeId: string
  /** An address of envelope or header is not ASCII: only a host with SMTPUTF8 takes it (RFC 6531). */
  needsUtf8: boolean
  /** The body has bytes beyond US-ASCII (RFC 6152). */
  is8Bit: boolean
}

/** The library asks for an extension only where the host announces it. */
interface WireEnvelope {
  from: string
  to: string[]
  size: number
  use8BitMime: boolean
  dsn: { ret: string; envid: string; notify: string[] }
}

/** What is used of the SMTP library. */
export interface Wire {
  send(
    envelope: WireEnvelope,
    body: Readable,
    done: (error: Error | null, info?: { response: string }) => void,
  ): void
  close(): void
  /** The last reply that was read. */
  lastServerResponse: string | false
}

export interface TransactionRequest {
  wire: Wire
  socket: Socket
  timeouts: { mail: number; rcpt: number; data: number; final_dot: number }
  envelope: SmtpEnvelope
  bytes: Buffer
  transcript: Transcript | null
}

export interface Transaction {
  end: Promise<SendEnd>
  isDotSent(): boolean
  giveUp(reason: string): void
}

/** A body that leaves more slowly than this is given up, so that no peer holds a message for ever. */
const SLOWEST_BODY_BYTES_PER_SECOND = 1_024
/** No progress on a write for this long is a lost connection (engine.md 10.1). */
const LONGEST_WRITE = 3 * MINUTE
/** Small enough that a large body follows the peer's pace, so that "dot sent" is not said long before it is true. */
const BODY_PIECE_BYTES = 64 * 1024

export function beginTransaction(request: TransactionRequest): Transaction {
  const { wire, socket, timeouts, envelope, bytes, transcript } = request
  const progress: SendProgress = { isBodyBegun: false, isDotSent: false }
  const { promise, resolve } = Promise.withResolvers<SendEnd>()
  let timer: NodeJS.Timeout | undefined
  const finish = (end: SendEnd): void => {
    clearTimeout(timer)
    resolve(end)
  }
  const giveUp = (reason: string): void => {
    finish(readSendError(new Error(reason), progress))
    wire.close()
    socket.destroy()
  }
  const limit = (milliseconds: number, what: string): void => {
    clearTimeout(timer)
    timer = setTimeout(() => giveUp(`${what}: no end within ${milliseconds} ms`), milliseconds)
  }

  const body = bodyOf(bytes, () => {
    progress.isBodyBegun = true
    socket.setTimeout(LONGEST_WRITE)
    if (!isAskedForBody(wire)) giveUp(`no 354 in the place of the answer to DATA: ${wire.lastServerResponse}`)
  })
  body.once('end', () => {
    progress.isDotSent = true
    transcript?.note(`the message, ${bytes.length} bytes, and the final dot`)
    socket.setTimeout(0)
    limit(timeouts.final_dot, 'reply to the final dot')
  })
  // The socket's own limit is for silence; ours is for a peer that drips.
  socket.setTimeout(Math.max(timeouts.mail, timeouts.rcpt, timeouts.data))
  const bodyLimit = Math.ceil(bytes.length / SLOWEST_BODY_BYTES_PER_SECOND) * SECOND
  limit(timeouts.mail + timeouts.rcpt + timeouts.data + bodyLimit, 'transaction')
  wire.send(wireEnvelope(envelope, bytes.length), body, (error, info) => {
    const isTaken = error === null && info !== undefined
    finish(isTaken ? readSendReply(info.response, progress) : readSendError(error, progress))
  })
  return { end: promise, isDotSent: () => progress.isDotSent, giveUp }
}

/**
 * Only 354 (RFC 5321 §4.1.1.4). The library goes on at any 2xx; but a peer that answered something twice is out of
 * step: it could take the body for commands, and what seems to answer the dot would answer something else.
 */
function isAskedForBody({ lastServerResponse }: Wire): boolean {
  return lastServerResponse !== false && lastServerResponse.startsWith('354')
}

function wireEnvelope(envelope: SmtpEnvelope, sizeBytes: number): WireEnvelope {
  return {
    from: envelope.from, to: [envelope.to], size: sizeBytes, use8BitMime: envelope.is8Bit,
    dsn: { ret: 'HDRS', envid: envelope.envelopeId, notify: ['FAILURE', 'DELAY'] },
  }
}

/** The body in pieces; its `end` is the moment before the library writes the final dot. */
function bodyOf(bytes: Buffer, onBegin: () => void): Readable {
  let position = 0
  return new Readable({
    highWaterMark: BODY_PIECE_BYTES,
    read() {
      if (position === 0) onBegin()
      // Given up: nothing of it may leave.
      if (this.destroyed) return
      const piece = bytes.subarray(position, position + BODY_PIECE_BYTES)
      position += piece.length
      if (piece.length > 0) this.push(piece)
      if (position >= bytes.length) this.push(null)
    },
  })
}
