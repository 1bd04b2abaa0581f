/**
 * The messages of one connection: MAIL, RCPT, DATA, body and dot, one after the other or the next behind the dot.
 *
 * | phase    | waits for                                 | a connection lost here                                |
 * | -------- | ----------------------------------------- | ----------------------------------------------------- |
 * | envelope | the replies to MAIL, RCPT, DATA           | `lost`; `unsent` where the one before may be to blame |
 * | body     | the body to leave, but for its last piece | `lost`                                                |
 * | held     | the dot mark                              | `lost`, `unmarked`                                    |
 * | dot      | the reply to the final dot                | `unanswered`                                          |
 * | void     | the reply to a lone dot that ends nothing | the refusal that came before                          |
 *
 * Where the host announces PIPELINING, MAIL, RCPT and DATA are one write, and the envelope of the next message goes
 * right behind the final dot: a round trip for each message. Every reply is judged by its own command, whatever came of
 * the others. The last piece of the body and the final dot leave only when all before has, and when the mark of the
 * message is confirmed. Each job ends exactly once. RFC 2920 §3.1; store/README.md "The dot mark and recovery",
 * delivery/README.md "The SMTP session" and "Stages".
 */
import { SECOND } from '../../base/clock.ts'
import type { ConnectionNote } from '../../egress/shaping/shaping.ts'
import { readSmtpReply } from '../../mail/reply/smtp-reply.ts'
import type { SmtpReply } from '../../mail/reply/smtp-reply.ts'
import { createMessageBody, PIECE_BYTES } from './message-body.ts'
import type { MessageBody } from './message-body.ts'
import type { RawReply } from './reply-reader.ts'
import { mailCommand, recipientCommand } from './smtp-extensions.ts'
import type { SmtpExtensions } from './smtp-extensions.ts'
import type { Expectation, SmtpWire, WireEnd, WireStage } from './smtp-wire.ts'
import { CLOSING_CODE, endOf, newTransaction, refusalOf, unacceptable, wasRcptSent } from './transaction-end.ts'
import type { SendEnd, SessionJob, Transaction } from './transaction-end.ts'

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
}

export interface TransactionsOptions {
  wire: SmtpWire
  extensions: SmtpExtensions
  timeouts: TransactionTimeouts
}

export interface Transactions {
  /** At its end `send` may be called again from within `onEnd`. */
  send(job: SessionJob): void
  isPastDot(): boolean
  /** Nothing new begins, and what has not sent its dot ends as returned; true when no reply is waited for. */
  stop(reason: string): boolean
  isStopped(): boolean
  /** The wire has ended; what that says of the connection. */
  settle(end: WireEnd): ConnectionEnd
}

/** A 421 in the place of an answer about a message is told with that message, and is no `closing`. */
export type ConnectionEnd = Extract<ConnectionNote, { kind: 'ended-well' | 'dropped' | 'closing' }>

/** A body that leaves more slowly than this is given up, so that no peer holds a message for ever. */
const SLOWEST_BODY_BYTES_PER_SECOND = 1_024
const START_INPUT = 354

export function createTransactions({ wire, extensions, timeouts }: TransactionsOptions): Transactions {
  const queue: SessionJob[] = []
  /** The one whose reply comes next, and the one behind its dot. */
  let active: Transaction[] = []
  let begun = 0
  let delivered = 0
  let needsReset = false
  let stopReason: string | null = null
  let isAdvancing = false
  let closing: SmtpReply | null = null
  /** The connection ends for a reason that is told with a message, or is our own. */
  let isExplained = false

  /** Writes what is given, and the next envelope behind it where one may go. */
  function advance(lines = '', expectations: Expectation[] = [], before?: Buffer): void {
    if (isAdvancing) return
    isAdvancing = true
    const next = takeNext()
    isAdvancing = false
    if (next === undefined) {
      if (lines !== '') wire.say(lines, expectations, before)
      return
    }
    active.push(next)
    begun++
    const envelope = envelopeOf(next)
    wire.say(lines + envelope.lines, [...expectations, ...envelope.expectations], before)
  }

  function mayBegin(): boolean {
    const [first] = active
    if (!wire.isOpen() || stopReason !== null || active.length > 1) return false
    return first === undefined || (first.phase === 'dot' && queue[0] !== undefined && isPipelined(queue[0]))
  }

  const isPipelined = ({ mayPipeline }: SessionJob): boolean => mayPipeline && extensions.isPipelining

  function takeNext(): Transaction | undefined {
    while (mayBegin()) {
      const job = queue.shift()
      if (job === undefined) break
      const problem = job.begin(begun) ?? unacceptable(job, extensions)
      const place = { isReused: begun > 0, isPipelined: isPipelined(job), behind: active[0] ?? null }
      if (problem === null) return newTransaction(job, place)
      job.onEnd(problem, false)
    }
    return undefined
  }

  function envelopeOf(transaction: Transaction): { lines: string; expectations: Expectation[] } {
    const { job } = transaction
    let lines = ''
    const expectations: Expectation[] = []
    const add = (line: string, expectation: Expectation): void => {
      job.transcript?.said(line)
      lines += `${line}\r\n`
      expectations.push(expectation)
    }
    if (needsReset) add('RSET', expectation(transaction, 'rset', onReset))
    needsReset = false
    add(mailCommand(job.envelope, job.bytes.length, extensions), expectation(transaction, 'mail', onMail))
    if (transaction.isPipelined) {
      add(recipientCommand(job.envelope, extensions), expectation(transaction, 'rcpt', onRecipient))
      add('DATA', expectation(transaction, 'data', onData))
    }
    return { lines, expectations }
  }

  function expectation(
    transaction: Transaction,
    stage: Exclude<WireStage, 'banner' | 'ehlo' | 'starttls' | 'quit'>,
    take: (transaction: Transaction, reply: RawReply) => void,
  ): Expectation {
    const limitMilliseconds = stage === 'dot' ? timeouts.final_dot : timeouts[stage]
    const { transcript } = transaction.job
    return { stage, limitMilliseconds, transcript, answer: (reply) => take(transaction, reply) }
  }

  function say(transaction: Transaction, line: string, expected: Expectation): void {
    transaction.job.transcript?.said(line)
    wire.say(`${line}\r\n`, [expected])
  }

  /** A transaction may still be open at the host: nothing can be said about this one. */
  function onReset(_transaction: Transaction, reply: RawReply): void {
    if (!isPositive(reply)) endAt(reply, 'RSET')
  }

  function onMail(transaction: Transaction, reply: RawReply): void {
    if (!take(transaction, 'mail', reply) || transaction.isPipelined) return
    if (transaction.refusal !== null) return finish(transaction)
    const line = recipientCommand(transaction.job.envelope, extensions)
    say(transaction, line, expectation(transaction, 'rcpt', onRecipient))
  }

  function onRecipient(transaction: Transaction, reply: RawReply): void {
    if (!take(transaction, 'rcpt', reply) || transaction.isPipelined) return
    if (transaction.refusal !== null) return finish(transaction)
    say(transaction, 'DATA', expectation(transaction, 'data', onData))
  }

  /** Notes a refusal; false when the wire has ended over it. */
  function take(transaction: Transaction, stage: 'mail' | 'rcpt', reply: RawReply): boolean {
    if (reply.code >= 300 && reply.code < 400) {
      endAt(reply, stage === 'mail' ? 'MAIL' : 'RCPT')
      return false
    }
    transaction.stage = stage
    if (!isPositive(reply)) return refuse(transaction, stage, reply)
    transaction.stage = stage === 'mail' ? 'rcpt' : 'data'
    transaction.job.onStage(transaction.stage)
    return true
  }

  /** The first refusal counts; what follows from it says nothing more. False when it is the end of the connection. */
  function refuse(transaction: Transaction, stage: 'mail' | 'rcpt' | 'data' | 'dot', reply: RawReply): boolean {
    const read = readSmtpReply(reply.text)
    if (read === undefined) {
      endAt(reply, stage)
      return false
    }
    transaction.refusal ??= { stage, reply: read }
    if (reply.code !== CLOSING_CODE) return true
    endExplained(`the host closes the connection: ${reply.text}`)
    return false
  }

  function onData(transaction: Transaction, reply: RawReply): void {
    transaction.stage = 'data'
    if (reply.code === START_INPUT) {
      if (transaction.refusal === null) return startBody(transaction)
      // Asked for the body of a message that has no recipient: an empty one ends it (RFC 2920 §3.1).
      transaction.phase = 'void'
      return say(transaction, '.', expectation(transaction, 'dot', onVoidDot))
    }
    // A host that answered something twice is out of step: it could take the body for commands.
    if (reply.code < 400) return endAt(reply, 'DATA')
    if (refuse(transaction, 'data', reply)) finish(transaction)
  }

  /** Whatever it says, it is about nothing; but a host that took it has a message that nobody sent. */
  function onVoidDot(transaction: Transaction, reply: RawReply): void {
    if (reply.code === CLOSING_CODE) return void refuse(transaction, 'data', reply)
    if (reply.code < 400) return endAt(reply, 'the end of an empty message')
    finish(transaction)
  }

  function startBody(transaction: Transaction): void {
    const { bytes, provenFrom } = transaction.job
    const longest = Math.ceil(bytes.length / SLOWEST_BODY_BYTES_PER_SECOND) * SECOND + timeouts.body
    transaction.phase = 'body'
    transaction.bodyEndsAt = performance.now() + longest
    writeBody(transaction, createMessageBody(bytes, provenFrom))
  }

  /**
   * The last piece waits for the mark, and goes out in one with the dot. The mark is asked for while the piece before
   * leaves: of a body that takes long it says nothing too early, and a lease that is over by then is noticed.
   */
  function writeBody(transaction: Transaction, body: MessageBody): void {
    const { piece, isLast } = body.next()
    transaction.job.onStage(isLast ? 'mark' : 'body')
    if (isLast) {
      transaction.phase = 'held'
      transaction.rest = { piece, end: body.end() }
      wire.limit(timeouts.mark, 'the dot mark')
    }
    if (!transaction.isAsked && body.left() <= PIECE_BYTES) {
      transaction.isAsked = true
      transaction.job.askMark((isOurs) => onMark(transaction, isOurs))
    }
    if (isLast) return transaction.isMarked ? sendDot(transaction) : undefined
    wire.limit(Math.min(timeouts.body, transaction.bodyEndsAt - performance.now()), 'the body')
    wire.write(piece, () => writeBody(transaction, body))
  }

  function onMark(transaction: Transaction, isOurs: boolean): void {
    if (!wire.isOpen() || !active.includes(transaction)) return
    transaction.isMarked = isOurs
    transaction.isStale = !isOurs
    if (!isOurs) return endExplained('the lease of the message is over')
    if (transaction.phase === 'held') sendDot(transaction)
  }

  function sendDot(transaction: Transaction): void {
    const {
      job: { bytes, transcript },
      rest,
    } = transaction
    if (rest === null) return
    transaction.phase = 'dot'
    transaction.rest = null
    transaction.job.onStage('dot')
    transcript?.note(`the message, ${bytes.length} bytes, and the final dot`)
    advance(rest.end, [expectation(transaction, 'dot', onDot)], rest.piece)
  }

  function onDot(transaction: Transaction, reply: RawReply): void {
    const read = readSmtpReply(reply.text)
    if (read === undefined || (reply.code >= 300 && reply.code < 400)) return endAt(reply, 'the final dot')
    if (!isPositive(reply)) return void (refuse(transaction, 'dot', reply) && finish(transaction))
    delivered++
    finish(transaction, { kind: 'accepted', reply: read })
  }

  function endAt(reply: RawReply, command: string): void {
    const read = readSmtpReply(reply.text)
    if (reply.code === CLOSING_CODE && read !== undefined) closing = read
    wire.end(
      command === 'DATA'
        ? `no 354 in the place of the answer to DATA: ${reply.text}`
        : `unexpected answer to ${command}: ${reply.text}`,
    )
  }

  function endExplained(reason: string): void {
    isExplained = true
    wire.end(reason)
  }

  function finish(transaction: Transaction, accepted?: SendEnd): void {
    const end = accepted ?? refusalOf(transaction)
    active = active.filter((one) => one !== transaction)
    if (accepted === undefined) needsReset = true
    tell(transaction, end)
    // Else each message of a busy connection would keep all those before it.
    transaction.behind = null
    if (stopReason !== null) endExplained(stopReason)
    else if (end.kind === 'unsent') endExplained(end.reason)
    else advance()
  }

  function tell(transaction: Transaction, end: SendEnd): void {
    const { job } = transaction
    if ('reason' in end) job.transcript?.note(end.reason)
    job.onEnd(end, wasRcptSent(transaction))
  }

  function settle(end: WireEnd): ConnectionEnd {
    if (end.reply?.code === CLOSING_CODE) closing = end.reply
    const isOurs = isExplained || (end.isTimeout && active[0]?.phase === 'held')
    const wasBusy = active.length > 0
    const [ended, unsent] = [active, queue.splice(0)]
    active = []
    for (const transaction of ended) tell(transaction, endOf(transaction, end))
    for (const job of unsent) job.onEnd({ kind: 'unsent', reason: end.reason }, false)
    if (closing !== null) return { kind: 'closing', reply: closing }
    if (wasBusy && !isOurs) return { kind: 'dropped', reason: end.reason }
    return { kind: 'ended-well', delivered }
  }

  const returned = (): SendEnd => ({ kind: 'returned', why: 'stopping', reason: stopReason ?? '' })

  return {
    send(job) {
      if (!wire.isOpen() || stopReason !== null) {
        return job.onEnd({ kind: 'unsent', reason: 'the connection is closed' }, false)
      }
      queue.push(job)
      advance()
    },
    isPastDot: () => active[0]?.phase === 'dot',
    stop(reason) {
      stopReason = reason
      const isWaiting = active[0]?.phase === 'dot'
      const ended = isWaiting ? active.slice(1) : active
      active = isWaiting ? active.slice(0, 1) : []
      const jobs = queue.splice(0)
      for (const transaction of ended) tell(transaction, returned())
      for (const job of jobs) job.onEnd(returned(), false)
      return !isWaiting
    },
    isStopped: () => stopReason !== null,
    settle,
  }
}

function isPositive({ code }: RawReply): boolean {
  return code >= 200 && code < 300
}
