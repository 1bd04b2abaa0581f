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
import { readSmtpReply } from '../../mail/reply/smtp-reply.ts'
import { createBodySteps } from './body-steps.ts'
import { createConnectionEnding, type ConnectionEnd } from './connection-ending.ts'
import { createEnvelopeSteps, isPositive, noteRefusal, type ExpectedStage, type TakeReply } from './envelope-steps.ts'
import { createLineUp } from './line-up.ts'
import type { RawReply } from './reply-reader.ts'
import type { SmtpExtensions } from './smtp-extensions.ts'
import type { Expectation, SmtpWire, WireEnd } from './smtp-wire.ts'
import { endOf, refusalOf, tellEnd, type SendEnd, type SessionJob, type Transaction } from './transaction-end.ts'

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

interface Transactions {
  /** At its end `send` may be called again from within `onEnd`. */
  send(job: SessionJob): void
  isPastDot(): boolean
  /** Nothing new begins, and what has not sent its dot ends as returned; true when no reply is waited for. */
  stop(reason: string): boolean
  isStopped(): boolean
  /** The wire has ended; what that says of the connection. */
  settle(end: WireEnd): ConnectionEnd
}

export function createTransactions(
  wire: SmtpWire,
  extensions: SmtpExtensions,
  timeouts: TransactionTimeouts,
): Transactions {
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
    send(job) {
      if (!wire.isOpen() || line.stopReason() !== null) {
        return job.onEnd({ kind: 'unsent', reason: 'the connection is closed' }, false)
      }
      line.add(job)
      advance()
    },
    isPastDot: () => line.first()?.phase === 'dot',
    stop: line.stop,
    isStopped: () => line.stopReason() !== null,
    settle(end) {
      const isBlameless = end.isTimeout && line.first()?.phase === 'held'
      const { transactions, jobs } = line.takeAll()
      for (const transaction of transactions) tellEnd(transaction, endOf(transaction, end))
      for (const job of jobs) job.onEnd({ kind: 'unsent', reason: end.reason }, false)
      return ending.of(end, { isBusy: transactions.length > 0, isBlameless, delivered })
    },
  }
}
