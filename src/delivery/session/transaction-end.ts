/**
 * One message on a connection, and what its end means: for itself, or for nothing but the connection. Pure. A message
 * is `unsent` when nothing was said about it and something else explains the end: it was not the first on its
 * connection and MAIL had no answer, or the reply to the message before it was still due. delivery/README.md "Stages".
 * What a refusal means for the message is judged later (`settle/judge-reply.ts`).
 */
import type { ConnectionNote } from '../../egress/shaping/shaping.ts'
import { readSmtpReply, type SmtpReply, type SmtpStage } from '../../mail/reply/smtp-reply.ts'
import type { ThreadStage } from '../../mail/whereabouts.ts'
import type { TryEnd } from '../protocol/try-result.ts'
import type { RawReply } from './reply-reader.ts'
import type { SmtpEnvelope, SmtpExtensions } from './smtp-extensions.ts'
import { CLOSING_CODE, type SmtpWire, type WireEnd } from './smtp-wire.ts'
import type { Transcript } from './transcript.ts'

/** Milliseconds. */
export interface TransactionTimeouts {
  mail: number
  rcpt: number
  data: number
  final_dot: number
  /** Each piece of the body. */
  body: number
  /** From the end of the body to the answer about the dot mark. */
  mark: number
  rset: number
  /** From a 421 to the close, when replies are waited for. */
  closing: number
}

/** `unsent`: nothing of it was taken or judged; to be sent over another connection. */
export type SendEnd = Exclude<TryEnd, { kind: 'path-failed' }> | { kind: 'unsent'; reason: string }

export interface SessionJob {
  envelope: SmtpEnvelope
  bytes: Buffer
  /** See `createMessageBody`. */
  provenFrom?: number | undefined
  transcript: Transcript | null
  /** False: one command at a time, whatever the host announces. */
  mayPipeline: boolean
  /** False: it does not go in a flight. */
  mayFly: boolean
  /** Asked right before its first command: why it is not to be sent any more, or null. */
  begin(messagesBefore: number): SendEnd | null
  /** After `begin`: how far it is, once more for each piece of a body. */
  onStage(stage: Extract<ThreadStage, 'rcpt' | 'data' | 'body' | 'mark' | 'dot'>): void
  /** Its dot waits for the answer: true once the mark is committed, false when the message is not ours any more. */
  askMark(answer: (isOurs: boolean) => void): void
  onEnd(end: SendEnd, wasRcptSent: boolean): void
}

export interface Transaction {
  job: SessionJob
  phase: 'envelope' | 'body' | 'held' | 'dot' | 'void'
  /** Whose reply comes next. */
  stage: 'mail' | 'rcpt' | 'data'
  refusal: { stage: 'mail' | 'rcpt' | 'data' | 'dot'; reply: SmtpReply } | null
  /** Not the first one of the connection. */
  isReused: boolean
  /** MAIL, RCPT and DATA are one write. */
  isPipelined: boolean
  /** Its envelope went out before the reply to this one's final dot was there. */
  behind: Transaction | null
  isAsked: boolean
  /** By the monotonic clock. */
  askedAt: number
  isMarked: boolean
  isStale: boolean
  /** What waits for the mark: the last piece of the body, and what ends it. */
  rest: { piece: Buffer; end: string } | null
  /** The body has to be out by then, in milliseconds of the monotonic clock. */
  bodyEndsAt: number
}

/** Another node sees for at least 12 s that this one commits nothing, before it declares it dead (nodes/README.md). */
const MARK_HOLDS_MILLISECONDS = 10_000

/** A dot that has waited so long goes out behind another mark: a node that was declared dead gets none. */
export const isOldMark = (askedAt: number): boolean => performance.now() - askedAt > MARK_HOLDS_MILLISECONDS

type Fresh = Omit<Transaction, 'job' | 'isReused' | 'isPipelined' | 'behind'>

const UNMARKED = { isAsked: false, askedAt: 0, isMarked: false, isStale: false, rest: null, bodyEndsAt: 0 }
const FRESH: Fresh = { phase: 'envelope', stage: 'mail', refusal: null, ...UNMARKED }

export function newTransaction(job: SessionJob, place: Omit<Transaction, 'job' | keyof Fresh>): Transaction {
  return { job, ...place, ...FRESH }
}

/** What the host cannot take, by what it announced. */
export function unacceptable({ envelope, bytes }: SessionJob, extensions: SmtpExtensions): SendEnd | null {
  const { hasSmtpUtf8, mostBytes } = extensions
  if (!hasSmtpUtf8 && envelope.needsUtf8) {
    const reason = 'the receiving host takes only addresses in US-ASCII (no SMTPUTF8)'
    return { kind: 'unacceptable', cause: 'not_ascii', reason }
  }
  if (mostBytes === null || bytes.length <= mostBytes) return null
  const reason = `the receiving host takes at most ${mostBytes} bytes, the message has ${bytes.length}`
  return { kind: 'unacceptable', cause: 'too_large', reason }
}

/** The wire has ended before the transaction did. */
export function endOf(transaction: Transaction, { reason, isTimeout }: WireEnd): SendEnd {
  const { phase, stage, refusal, behind, isReused, isStale } = transaction
  if (isStale) return { kind: 'returned', why: 'stale', reason }
  const isClosed = refusal?.stage === 'mail' && refusal.reply.code === CLOSING_CODE
  if (refusal !== null && !(isReused && isClosed)) return refusalOf(transaction)
  switch (phase) {
    case 'dot':
      return { kind: 'unanswered', reason }
    case 'body':
      return { kind: 'lost', stage: 'data', reason }
    case 'held':
      return isTimeout ? { kind: 'returned', why: 'unmarked', reason } : { kind: 'lost', stage: 'data', reason }
    case 'envelope':
    case 'void': {
      // An idle connection had been closed, or the message before was what the host did not like.
      const isOthersFault = behind !== null || (isReused && (stage === 'mail' || isClosed))
      return isOthersFault ? { kind: 'unsent', reason } : { kind: 'lost', stage, reason }
    }
  }
}

/**
 * Behind a refused dot a refusal of MAIL is not believed: a host that answers such a message twice would have it told
 * about the next one.
 */
export function refusalOf({ refusal, behind }: Transaction): SendEnd {
  if (refusal === null) return { kind: 'lost', stage: 'data', reason: 'no reply' }
  const isDoubtful = refusal.stage === 'mail' && behind?.refusal?.stage === 'dot'
  return isDoubtful ? { kind: 'unsent', reason: refusal.reply.text } : { kind: 'refused', ...refusal }
}

export function tellEnd(transaction: Transaction, end: SendEnd): void {
  tellJob(transaction.job, end, wasRcptSent(transaction))
}

export function tellJob({ transcript, onEnd }: SessionJob, end: SendEnd, wasSent: boolean): void {
  if ('reason' in end) transcript?.note(end.reason)
  onEnd(end, wasSent)
}

/** The host did not understand the dialogue: one command at a time may help. */
export function isProtocolError({ code, enhancedCode }: SmtpReply, stage: SmtpStage): boolean {
  if (code < 500 || code > 503) return false
  // About the protocol: X.5.z of RFC 3463 §3.6. A 501 to RCPT without a code speaks of the address.
  if (enhancedCode !== null) return enhancedCode.startsWith('5.5.')
  return code !== 501 || stage !== 'rcpt'
}

/** Step by step RCPT follows a MAIL that was taken; in one write all of them go. */
function wasRcptSent({ stage, isPipelined }: Transaction): boolean {
  return isPipelined || stage !== 'mail'
}

/** A 421 in the place of an answer about a message is told with that message, and is no `closing`. */
export type ConnectionEnd = Extract<ConnectionNote, { kind: 'ended-well' | 'dropped' | 'closing' }>

/**
 * Why a connection ends, and what that says of its path. An end for a reason that is told with a message, or is our
 * own, is none that the path is to blame for.
 */
export type ConnectionEnding = ReturnType<typeof createConnectionEnding>

export function createConnectionEnding(wire: Pick<SmtpWire, 'end' | 'awaitClose'>) {
  let closing: SmtpReply | null = null
  let isExplained = false
  return {
    explain(reason: string): void {
      isExplained = true
      wire.end(reason)
    },
    /** A 421 with replies behind it; `isTold`: with a message. */
    awaitClose(reply: RawReply, milliseconds: number, isTold: boolean): void {
      if (isTold) isExplained = true
      else closing = readSmtpReply(reply.text) ?? null
      wire.awaitClose(milliseconds, `the host closes the connection: ${reply.text}`)
    },
    /** The reply does not fit its command: the host is out of step. */
    outOfStep(reply: RawReply, command: string): void {
      const read = readSmtpReply(reply.text)
      const isClosing = reply.code === CLOSING_CODE && read !== undefined
      if (isClosing) closing = read
      const what = command === 'DATA' ? 'no 354 in the place of the answer to DATA' : `unexpected answer to ${command}`
      wire.end(`${what}: ${reply.text}`, !isClosing)
    },
    /** The wire has ended; `isBlameless`: what it waited for was ours to give. */
    of(end: WireEnd, isBusy: boolean, isBlameless: boolean, delivered: number): ConnectionEnd {
      if (end.reply?.code === CLOSING_CODE) closing = end.reply
      if (closing !== null) return { kind: 'closing', reply: closing }
      if (isBusy && !isExplained && !isBlameless) return { kind: 'dropped', reason: end.reason }
      return { kind: 'ended-well', delivered }
    },
  }
}

export type Reset = ReturnType<typeof createReset>

/** Whether a transaction may be open at the host, so that RSET has to stand in front of the next. */
export function createReset() {
  let isNeeded = false
  return {
    /** Of the message that ended last. */
    note: (isRefused: boolean) => void (isNeeded = isRefused),
    take(): boolean {
      const wasNeeded = isNeeded
      isNeeded = false
      return wasNeeded
    },
  }
}
