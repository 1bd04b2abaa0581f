/**
 * MAIL, RCPT and DATA of one message, one after the other or in one write, up to the 354 that asks for its body. Each
 * reply is judged by its own command, whatever came of the others. The first refusal counts. Never throws. RFC 2920
 * §3.1; delivery/README.md "Stages". What follows from a refusal, also from a 421, is `settle/judge-reply.ts`'s.
 */
import { readSmtpReply } from '../../mail/reply/smtp-reply.ts'
import type { ConnectionEnding, Transaction } from './transaction-end.ts'
import type { RawReply } from './reply-reader.ts'
import { mailCommand, recipientCommand, type SmtpExtensions } from './smtp-extensions.ts'
import { CLOSING_CODE, type Expectation, type SmtpWire } from './smtp-wire.ts'

interface EnvelopeTools {
  wire: Pick<SmtpWire, 'say'>
  extensions: SmtpExtensions
  ending: ConnectionEnding
  /** The reply to a command of a transaction, within the limit of its stage. */
  expect: (transaction: Transaction, stage: ExpectedStage, take: TakeReply) => Expectation
  startBody: (transaction: Transaction) => void
  finish: (transaction: Transaction) => void
}

export type ExpectedStage = 'rset' | 'mail' | 'rcpt' | 'data' | 'dot'
type Stage = Exclude<ExpectedStage, 'rset'>
export type TakeReply = (transaction: Transaction, reply: RawReply) => void

const START_INPUT = 354

export function createEnvelopeSteps(tools: EnvelopeTools) {
  const { wire, extensions, ending, expect, startBody, finish } = tools

  function say(transaction: Transaction, line: string, expected: Expectation): void {
    transaction.job.transcript?.said(line)
    wire.say(`${line}\r\n`, [expected])
  }

  /** A transaction may still be open at the host: nothing can be said about this one. */
  function onReset(_transaction: Transaction, reply: RawReply): void {
    if (!isPositive(reply)) ending.outOfStep(reply, 'RSET')
  }

  function onMail(transaction: Transaction, reply: RawReply): void {
    if (!take(transaction, 'mail', reply) || transaction.isPipelined) return
    if (transaction.refusal !== null) return finish(transaction)
    say(transaction, recipientCommand(transaction.job.envelope, extensions), expect(transaction, 'rcpt', onRecipient))
  }

  function onRecipient(transaction: Transaction, reply: RawReply): void {
    if (!take(transaction, 'rcpt', reply) || transaction.isPipelined) return
    if (transaction.refusal !== null) return finish(transaction)
    say(transaction, 'DATA', expect(transaction, 'data', onData))
  }

  /** Notes a refusal; false when the wire has ended over it. */
  function take(transaction: Transaction, stage: 'mail' | 'rcpt', reply: RawReply): boolean {
    if (reply.code >= 300 && reply.code < 400) {
      ending.outOfStep(reply, stage.toUpperCase())
      return false
    }
    transaction.stage = stage
    if (!isPositive(reply)) return noteRefusal(ending, transaction, stage, reply)
    transaction.stage = stage === 'mail' ? 'rcpt' : 'data'
    transaction.job.onStage(transaction.stage)
    return true
  }

  function onData(transaction: Transaction, reply: RawReply): void {
    transaction.stage = 'data'
    if (reply.code === START_INPUT) {
      if (transaction.refusal === null) return startBody(transaction)
      // Asked for the body of a message that has no recipient: an empty one ends it (RFC 2920 §3.1).
      transaction.phase = 'void'
      return say(transaction, '.', expect(transaction, 'dot', onVoidDot))
    }
    // A host that answered something twice is out of step: it could take the body for commands.
    if (reply.code < 400) return ending.outOfStep(reply, 'DATA')
    if (noteRefusal(ending, transaction, 'data', reply)) finish(transaction)
  }

  /** Whatever it says, it is about nothing; but a host that took it has a message that nobody sent. */
  function onVoidDot(transaction: Transaction, reply: RawReply): void {
    if (reply.code === CLOSING_CODE) return void noteRefusal(ending, transaction, 'data', reply)
    if (reply.code < 400) return ending.outOfStep(reply, 'the end of an empty message')
    finish(transaction)
  }

  /** The lines that open a transaction, and the replies to them. */
  return (transaction: Transaction, needsReset: boolean): { lines: string; expectations: Expectation[] } => {
    const { job, isPipelined } = transaction
    let lines = ''
    const expectations: Expectation[] = []
    const add = (line: string, expectation: Expectation): void => {
      job.transcript?.said(line)
      lines += `${line}\r\n`
      expectations.push(expectation)
    }
    if (needsReset) add('RSET', expect(transaction, 'rset', onReset))
    add(mailCommand(job.envelope, job.bytes.length, extensions), expect(transaction, 'mail', onMail))
    if (isPipelined) {
      add(recipientCommand(job.envelope, extensions), expect(transaction, 'rcpt', onRecipient))
      add('DATA', expect(transaction, 'data', onData))
    }
    return { lines, expectations }
  }
}

/** The first refusal counts; what follows from it says nothing more. False when it is the end of the connection. */
export function noteRefusal(ending: ConnectionEnding, transaction: Transaction, stage: Stage, reply: RawReply) {
  const read = readSmtpReply(reply.text)
  if (read === undefined) {
    ending.outOfStep(reply, stage)
    return false
  }
  transaction.refusal ??= { stage, reply: read }
  if (reply.code !== CLOSING_CODE) return true
  ending.explain(`the host closes the connection: ${reply.text}`)
  return false
}

export function isPositive({ code }: RawReply): boolean {
  return code >= 200 && code < 300
}
