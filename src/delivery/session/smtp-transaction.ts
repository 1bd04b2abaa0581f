/**
 * The messages of one connection: MAIL, RCPT, DATA, body and dot of one after the other, or flights (`flight.ts`).
 *
 * | phase    | waits for                                 | a connection lost here                                |
 * | -------- | ----------------------------------------- | ----------------------------------------------------- |
 * | envelope | the replies to MAIL, RCPT, DATA           | `lost`; `unsent` if the mail before may be the reason  |
 * | body     | the body to leave, but for its last piece | `lost`                                                |
 * | held     | the dot mark                              | `lost`, `unmarked`                                    |
 * | dot      | the reply to the final dot                | `unanswered`                                          |
 * | void     | the reply to a dot without a body         | the refusal that came before                          |
 *
 * The last piece of the body and the final dot leave only after all before them has left and the dot mark is confirmed.
 * With PIPELINING the envelope of the next message follows the dot at once. `void`: the host took DATA though it had
 * refused the message, so an empty one is ended. Each job ends exactly once. delivery/README.md "The SMTP session" and
 * "Stages".
 */
import { MINUTE, SECOND } from '../../base/clock.ts'
import { readSmtpReply } from '../../mail/reply/smtp-reply.ts'
import { createEnvelopeSteps, isPositive, noteRefusal, type ExpectedStage, type TakeReply } from './envelope-steps.ts'
import { createLineUp, type LineUp } from './line-up.ts'
import { createMessageBody, PIECE_BYTES, type MessageBody } from './message-body.ts'
import { createFlight, type Flight } from './flight.ts'
import type { FlightPermit } from './flight-permit.ts'
import type { RawReply } from './reply-reader.ts'
import type { SmtpExtensions } from './smtp-extensions.ts'
import type { Expectation, SmtpWire, WireEnd } from './smtp-wire.ts'
import {
  createConnectionEnding,
  createReset,
  endOf,
  isOldMark,
  refusalOf,
  tellEnd,
  type ConnectionEnd,
  type ConnectionEnding,
  type Reset,
  type SendEnd,
  type SessionJob,
  type Transaction,
  type TransactionTimeouts,
} from './transaction-end.ts'

/** A body that leaves more slowly than this is given up, so that no peer holds a message for ever. */
const SLOWEST_BODY_BYTES_PER_SECOND = 1_024
const LONGEST_BODY = 30 * MINUTE

interface TransactionOptions {
  extensions: SmtpExtensions
  timeouts: TransactionTimeouts
  permit: FlightPermit
}

export function createTransactions(wire: SmtpWire, options: TransactionOptions) {
  const { permit } = options
  const ending = createConnectionEnding(wire)
  const reset = createReset()
  const line = createLineUp({ ...options, wire, isFlightEmpty: () => flight.isEmpty() })
  const dialogue = createDialogue({ ...options, wire, ending, line, reset, onFinished: goOn })
  const flight: Flight = createFlight({ ...options, wire, ending, reset, onRoom: proceed })

  /** What waits goes, in a flight or by the careful dialogue, as far as it may now. */
  function proceed(): void {
    for (let job = line.nextOfFlight(flight); job !== undefined; job = line.nextOfFlight(flight)) {
      flight.add(job, line.begun() === 1)
    }
    dialogue.advance()
  }

  /** `problem`: nothing more may go over this connection. */
  function goOn(problem: string | null): void {
    const reason = line.stopReason() ?? problem
    if (reason === null) proceed()
    else if (flight.isEmpty()) ending.explain(reason)
  }

  return {
    /** At its end `send` may be called again from within `onEnd`. */
    send(job: SessionJob): void {
      if (!wire.isOpen() || line.stopReason() !== null) {
        return job.onEnd({ kind: 'unsent', reason: 'the connection is closed' }, false)
      }
      line.add(job)
      proceed()
    },
    /** All replies that came at once have been taken. */
    onRead(): void {
      permit.refresh()
      if (flight.isEmpty()) return
      flight.tellHeard()
      goOn(null)
    },
    mostTaken: () => permit.mostTaken(line.hasUnfit()),
    isPastDot: () => line.first()?.phase === 'dot' || flight.hasSent(),
    /** Nothing new begins, and what has not sent its dot ends as returned; true when no reply is waited for. */
    stop(reason: string): boolean {
      const isNoneInDialogue = line.stop(reason)
      const isNoneInFlight = flight.stop({ kind: 'returned', why: 'stopping', reason })
      return isNoneInDialogue && isNoneInFlight
    },
    isStopped: () => line.stopReason() !== null,
    /** The wire has ended; what that says of the connection. */
    settle(end: WireEnd): ConnectionEnd {
      const isBlameless = end.isTimeout && (line.first()?.phase === 'held' || flight.isHeldOnly())
      const isBusy = line.first() !== undefined || !flight.isEmpty()
      flight.settle(end)
      const { transactions, jobs } = line.takeAll()
      for (const transaction of transactions) tellEnd(transaction, endOf(transaction, end))
      for (const job of jobs) job.onEnd({ kind: 'unsent', reason: end.reason }, false)
      return ending.of(end, isBusy, isBlameless, dialogue.delivered() + flight.delivered())
    },
  }
}

interface DialogueTools extends TransactionOptions {
  wire: SmtpWire
  ending: ConnectionEnding
  line: LineUp
  reset: Reset
  /** A message has ended. */
  onFinished: (problem: string | null) => void
}

/** One message after the other: envelope, body, mark and dot. */
function createDialogue({ wire, extensions, timeouts, permit, ending, line, reset, onFinished }: DialogueTools) {
  const startBody = createBodySteps({ wire, timeouts, ending, isActive: line.has, sendDot })
  const openEnvelope = createEnvelopeSteps({ wire, extensions, ending, expect, startBody, finish })
  let delivered = 0

  function expect(transaction: Transaction, stage: ExpectedStage, take: TakeReply): Expectation {
    const limitMilliseconds = stage === 'dot' ? timeouts.final_dot : timeouts[stage]
    const { transcript } = transaction.job
    return { stage, limitMilliseconds, transcript, answer: (reply) => take(transaction, reply) }
  }

  /** Writes what is given, and the next envelope behind it where one may go. */
  function advance(lines = '', expectations: Expectation[] = [], before: readonly Buffer[] = []): void {
    const next = line.next()
    if (next === undefined) return lines === '' ? undefined : wire.say(lines, expectations, { before })
    const envelope = openEnvelope(next, reset.take())
    wire.say(lines + envelope.lines, [...expectations, ...envelope.expectations], { before })
  }

  function sendDot(transaction: Transaction): void {
    const { job, rest } = transaction
    if (rest === null) return
    transaction.phase = 'dot'
    transaction.rest = null
    job.onStage('dot')
    job.transcript?.note(`the message, ${job.bytes.length} bytes, and the final dot`)
    advance(rest.end, [expect(transaction, 'dot', onDot)], [rest.piece])
  }

  function onDot(transaction: Transaction, reply: RawReply): void {
    const read = readSmtpReply(reply.text)
    const isNoAnswer = read === undefined || (reply.code >= 300 && reply.code < 400)
    if (isNoAnswer) return ending.outOfStep(reply, 'the final dot')
    if (!isPositive(reply)) return void (noteRefusal(ending, transaction, 'dot', reply) && finish(transaction))
    delivered++
    finish(transaction, { kind: 'accepted', reply: read })
  }

  function finish(transaction: Transaction, accepted?: SendEnd): void {
    const end = accepted ?? refusalOf(transaction)
    line.remove(transaction)
    reset.note(accepted === undefined)
    permit.refresh()
    permit.noteCareful(accepted !== undefined)
    tellEnd(transaction, end)
    // Else each message of a busy connection would keep all those before it.
    transaction.behind = null
    onFinished(end.kind === 'unsent' ? end.reason : null)
  }

  return { advance, delivered: () => delivered }
}

interface BodyTools {
  wire: SmtpWire
  timeouts: TransactionTimeouts
  ending: ConnectionEnding
  isActive: (transaction: Transaction) => boolean
  sendDot: (transaction: Transaction) => void
}

/**
 * Returns what begins the body of a transaction: piece by piece, up to the final dot, which is held until the mark is
 * there. The mark is asked for while the last piece but one leaves: of a body that takes long it says nothing too
 * early, and a lease that is over by then is noticed. The last piece goes out in one with the dot. A mark that comes
 * when its transaction has ended is not heeded. store/README.md "The dot mark and recovery".
 */
function createBodySteps(tools: BodyTools): (transaction: Transaction) => void {
  const { wire, timeouts, ending, isActive, sendDot } = tools

  function writeBody(transaction: Transaction, body: MessageBody): void {
    const { piece, isLast } = body.next()
    transaction.job.onStage(isLast ? 'mark' : 'body')
    if (isLast) {
      transaction.phase = 'held'
      transaction.rest = { piece, end: body.end() }
      wire.limit(timeouts.mark, 'the dot mark')
    }
    if (!transaction.isAsked && body.left() <= PIECE_BYTES) {
      askMark(transaction)
    }
    if (isLast) return transaction.isMarked ? sendMarked(transaction) : undefined
    wire.limit(Math.min(timeouts.body, transaction.bodyEndsAt - performance.now()), 'the body')
    wire.write(piece, () => writeBody(transaction, body))
  }

  function askMark(transaction: Transaction): void {
    transaction.isAsked = true
    transaction.askedAt = performance.now()
    transaction.job.askMark((isOurs) => onMark(transaction, isOurs))
  }

  function sendMarked(transaction: Transaction): void {
    if (isOldMark(transaction.askedAt)) askMark(transaction)
    else sendDot(transaction)
  }

  function onMark(transaction: Transaction, isOurs: boolean): void {
    if (!wire.isOpen() || !isActive(transaction)) return
    transaction.isMarked = isOurs
    transaction.isStale = !isOurs
    if (!isOurs) return ending.explain('the lease of the message is over')
    if (transaction.phase === 'held') sendMarked(transaction)
  }

  return (transaction) => {
    const { bytes, provenFrom } = transaction.job
    const longest = Math.min(LONGEST_BODY, Math.ceil(bytes.length / SLOWEST_BODY_BYTES_PER_SECOND) * SECOND)
    transaction.phase = 'body'
    transaction.bodyEndsAt = performance.now() + longest + timeouts.body
    writeBody(transaction, createMessageBody(bytes, provenFrom))
  }
}
