/**
 * The messages of one connection: MAIL, RCPT, DATA, body and dot of one after the other.
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
import { SECOND } from '../../base/clock.ts'
import { readSmtpReply } from '../../mail/reply/smtp-reply.ts'
import { createEnvelopeSteps, isPositive, noteRefusal, type ExpectedStage, type TakeReply } from './envelope-steps.ts'
import { createMessageBody, PIECE_BYTES, type MessageBody } from './message-body.ts'
import type { RawReply } from './reply-reader.ts'
import type { SmtpExtensions } from './smtp-extensions.ts'
import type { Expectation, SmtpWire, WireEnd } from './smtp-wire.ts'
import {
  createConnectionEnding,
  endOf,
  newTransaction,
  refusalOf,
  tellEnd,
  unacceptable,
  type ConnectionEnd,
  type ConnectionEnding,
  type SendEnd,
  type SessionJob,
  type Transaction,
} from './transaction-end.ts'

/** A body that leaves more slowly than this is given up, so that no peer holds a message for ever. */
const SLOWEST_BODY_BYTES_PER_SECOND = 1_024

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

export function createTransactions(wire: SmtpWire, extensions: SmtpExtensions, timeouts: TransactionTimeouts) {
  const line = createLineUp(wire, extensions)
  const ending = createConnectionEnding(wire)
  const startBody = createBodySteps({ wire, timeouts, ending, isActive: line.has, sendDot })
  const openEnvelope = createEnvelopeSteps({ wire, extensions, ending, expect, startBody, finish })
  let delivered = 0
  let needsReset = false

  function expect(transaction: Transaction, stage: ExpectedStage, take: TakeReply): Expectation {
    const limitMilliseconds = stage === 'dot' ? timeouts.final_dot : timeouts[stage]
    const { transcript } = transaction.job
    return { stage, limitMilliseconds, transcript, answer: (reply) => take(transaction, reply) }
  }

  /** Writes what is given, and the next envelope behind it where one may go. */
  function advance(lines = '', expectations: Expectation[] = [], before?: Buffer): void {
    const next = line.next()
    if (next === undefined) return lines === '' ? undefined : wire.say(lines, expectations, before)
    const envelope = openEnvelope(next, needsReset)
    needsReset = false
    wire.say(lines + envelope.lines, [...expectations, ...envelope.expectations], before)
  }

  function sendDot(transaction: Transaction): void {
    const { job, rest } = transaction
    if (rest === null) return
    transaction.phase = 'dot'
    transaction.rest = null
    job.onStage('dot')
    job.transcript?.note(`the message, ${job.bytes.length} bytes, and the final dot`)
    advance(rest.end, [expect(transaction, 'dot', onDot)], rest.piece)
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
    if (accepted === undefined) needsReset = true
    tellEnd(transaction, end)
    // Else each message of a busy connection would keep all those before it.
    transaction.behind = null
    const reason = line.stopReason() ?? (end.kind === 'unsent' ? end.reason : null)
    if (reason === null) advance()
    else ending.explain(reason)
  }

  return {
    /** At its end `send` may be called again from within `onEnd`. */
    send(job: SessionJob): void {
      if (!wire.isOpen() || line.stopReason() !== null) {
        return job.onEnd({ kind: 'unsent', reason: 'the connection is closed' }, false)
      }
      line.add(job)
      advance()
    },
    isPastDot: () => line.first()?.phase === 'dot',
    /** Nothing new begins, and what has not sent its dot ends as returned; true when no reply is waited for. */
    stop: line.stop,
    isStopped: () => line.stopReason() !== null,
    /** The wire has ended; what that says of the connection. */
    settle(end: WireEnd): ConnectionEnd {
      const isBlameless = end.isTimeout && line.first()?.phase === 'held'
      const { transactions, jobs } = line.takeAll()
      for (const transaction of transactions) tellEnd(transaction, endOf(transaction, end))
      for (const job of jobs) job.onEnd({ kind: 'unsent', reason: end.reason }, false)
      return ending.of(end, transactions.length > 0, isBlameless, delivered)
    },
  }
}

/**
 * The messages in their order: those that wait, the one whose reply comes next, and the one behind its dot. A message
 * begins when nothing is under way; behind a final dot only where both it and the host may pipeline. One that the host
 * cannot take ends without a command.
 */
function createLineUp(wire: Pick<SmtpWire, 'isOpen'>, extensions: SmtpExtensions) {
  const jobs: SessionJob[] = []
  let active: Transaction[] = []
  let begun = 0
  let stopReason: string | null = null
  let isBeginning = false

  const isPipelined = ({ mayPipeline }: SessionJob): boolean => mayPipeline && extensions.isPipelining

  function mayBegin(): boolean {
    const [first] = active
    if (!wire.isOpen() || stopReason !== null || active.length > 1) return false
    return first === undefined || (first.phase === 'dot' && jobs[0] !== undefined && isPipelined(jobs[0]))
  }

  function takeNext(): Transaction | undefined {
    while (mayBegin()) {
      const job = jobs.shift()
      if (job === undefined) break
      const problem = job.begin(begun) ?? unacceptable(job, extensions)
      const place = { isReused: begun > 0, isPipelined: isPipelined(job), behind: active[0] ?? null }
      if (problem === null) return newTransaction(job, place)
      job.onEnd(problem, false)
    }
    return undefined
  }

  return {
    add: (job: SessionJob) => void jobs.push(job),
    /** Begins the next message, if one may go now. */
    next(): Transaction | undefined {
      // A job that ends at once may bring another one.
      if (isBeginning) return undefined
      isBeginning = true
      const next = takeNext()
      isBeginning = false
      if (next === undefined) return undefined
      active.push(next)
      begun++
      return next
    },
    /** The one whose reply comes next. */
    first: () => active[0],
    has: (transaction: Transaction) => active.includes(transaction),
    remove(transaction: Transaction): void {
      active = active.filter((one) => one !== transaction)
    },
    /** Everything leaves: the connection has ended. */
    takeAll(): { transactions: Transaction[]; jobs: SessionJob[] } {
      const transactions = active
      active = []
      return { transactions, jobs: jobs.splice(0) }
    },
    /** Nothing begins any more; all goes back but a message that waits for the reply to its dot. True: there is none. */
    stop(reason: string): boolean {
      stopReason = reason
      const end: SendEnd = { kind: 'returned', why: 'stopping', reason }
      const isWaiting = active[0]?.phase === 'dot'
      const ended = active.splice(isWaiting ? 1 : 0)
      const unsent = jobs.splice(0)
      for (const transaction of ended) tellEnd(transaction, end)
      for (const job of unsent) job.onEnd(end, false)
      return !isWaiting
    },
    stopReason: () => stopReason,
  }
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
      transaction.isAsked = true
      transaction.job.askMark((isOurs) => onMark(transaction, isOurs))
    }
    if (isLast) return transaction.isMarked ? sendDot(transaction) : undefined
    wire.limit(Math.min(timeouts.body, transaction.bodyEndsAt - performance.now()), 'the body')
    wire.write(piece, () => writeBody(transaction, body))
  }

  function onMark(transaction: Transaction, isOurs: boolean): void {
    if (!wire.isOpen() || !isActive(transaction)) return
    transaction.isMarked = isOurs
    transaction.isStale = !isOurs
    if (!isOurs) return ending.explain('the lease of the message is over')
    if (transaction.phase === 'held') sendDot(transaction)
  }

  return (transaction) => {
    const { bytes, provenFrom } = transaction.job
    const longest = Math.ceil(bytes.length / SLOWEST_BODY_BYTES_PER_SECOND) * SECOND + timeouts.body
    transaction.phase = 'body'
    transaction.bodyEndsAt = performance.now() + longest
    writeBody(transaction, createMessageBody(bytes, provenFrom))
  }
}
