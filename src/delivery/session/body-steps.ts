/**
 * The body of one message, piece by piece, up to the final dot, which is held until the mark is there.
 *
 * The mark is asked for while the last piece but one leaves: of a body that takes long it says nothing too early, and a
 * lease that is over by then is noticed. The last piece goes out in one with the dot. A mark that comes when its
 * transaction has ended is not heeded. store/README.md "The dot mark and recovery".
 */
import { SECOND } from '../../base/clock.ts'
import type { ConnectionEnding } from './connection-ending.ts'
import { createMessageBody, PIECE_BYTES, type MessageBody } from './message-body.ts'
import type { SmtpWire } from './smtp-wire.ts'
import type { Transaction } from './transaction-end.ts'

interface BodyTools {
  wire: Pick<SmtpWire, 'isOpen' | 'limit' | 'write'>
  /** `body`: each piece; `mark`: from the end of the body to the answer about the dot mark. */
  timeouts: { body: number; mark: number }
  ending: ConnectionEnding
  isActive: (transaction: Transaction) => boolean
  sendDot: (transaction: Transaction) => void
}

/** A body that leaves more slowly than this is given up, so that no peer holds a message for ever. */
const SLOWEST_BODY_BYTES_PER_SECOND = 1_024

/** Returns what begins the body of a transaction. */
export function createBodySteps(tools: BodyTools): (transaction: Transaction) => void {
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
