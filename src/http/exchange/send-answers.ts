/**
 * The bodies that sending is answered with (http/README.md "Answer of a send" and "Batches"). Pure.
 *
 * An answer is composed before the commit, as if nobody were suppressed, and kept in that form; `withSuppressed` makes
 * the final body of it, for the first answer and for a replay alike.
 */
import { toUnixSeconds } from '../../base/clock.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import type * as accept from '../../messages/accept/send-request.ts'
import { errorBody } from './error-responses.ts'
import type { Answer } from './answer.ts'
import type { ApiRequest } from './route.ts'

type Body = Record<string, unknown>

/** As if nothing were suppressed. */
export function sendBody({ acceptedAt, recipients }: accept.AcceptedMessages): Body {
  const [first] = recipients
  const body: Body = { success: true, message_id: first?.messageId, timestamp: toUnixSeconds(acceptedAt) }
  if (first?.status === 'scheduled') body['status'] = 'scheduled'
  if (recipients.length > 1) {
    body['recipients'] = recipients.map(({ to, messageId }) => ({ to, message_id: messageId }))
  }
  return body
}

/** As if nothing were suppressed. */
export function batchBody({ batchId, acceptedAt, results }: accept.AcceptedBatch): Body {
  const accepted = results.filter((result) => 'messageId' in result).length
  return {
    success: true,
    batch_id: batchId,
    timestamp: toUnixSeconds(acceptedAt),
    total: results.length,
    accepted,
    rejected: results.length - accepted,
    results: results.map(resultEntry),
  }
}

function resultEntry(result: accept.AcceptedRecipient | accept.RefusedRecipient, index: number): Body {
  const { to } = result
  if ('messageId' in result) {
    const { messageId, status } = result
    return { index, to, success: true, message_id: messageId, status: status === 'suppressed' ? 'queued' : status }
  }
  return { index, to, success: false, error: errorBody(result.code, result.details) }
}

/** As it was committed. */
export function sentBody(accepted: accept.AcceptedMessages): Body {
  return withSuppressed(sendBody(accepted), suppressedAmong(accepted.recipients))
}

/** As it was committed. */
export function sentBatchBody(accepted: accept.AcceptedBatch): Body {
  return withSuppressed(batchBody(accepted), suppressedAmong(accepted.results))
}

/** Which messages of an answer are suppressed, counted among the accepted ones. */
function suppressedAmong(
  results: readonly (accept.AcceptedRecipient | accept.RefusedRecipient)[],
): accept.SuppressedMessage[] {
  return results
    .filter((result) => 'messageId' in result)
    .flatMap(({ reason }, index) => (reason === null ? [] : [{ index, reason }]))
}

/** `body` is one of the two above, or that of a message sent again, which has its state in `data`. */
function withSuppressed(body: Body, suppressed: readonly accept.SuppressedMessage[]): Body {
  if (suppressed.length === 0) return body
  if (isPlainObject(body['data'])) return { ...body, data: { ...body['data'], state: 'suppressed' } }
  const reasons = new Map(suppressed.map(({ index, reason }) => [index, { status: 'suppressed', reason }]))
  const { results, recipients, ...rest } = body
  if (Array.isArray(results)) return { ...rest, results: markAccepted(results, reasons) }
  const marked = { ...rest, ...reasons.get(0) }
  return Array.isArray(recipients) ? { ...marked, recipients: markAccepted(recipients, reasons) } : marked
}

/** Entries without a message are not counted. */
function markAccepted(entries: readonly Body[], reasons: ReadonlyMap<number, object>): Body[] {
  let index = -1
  return entries.map((entry) => {
    if (entry['message_id'] === undefined) return entry
    index += 1
    return { ...entry, ...reasons.get(index) }
  })
}

/** The first answer again, whatever has become of the messages since. */
export function replayedAnswer(
  request: Pick<ApiRequest, 'setHeader'>,
  { answer, suppressed }: { answer: accept.KeptAnswer; suppressed: readonly accept.SuppressedMessage[] },
): Answer {
  request.setHeader('Idempotent-Replayed', 'true')
  return { status: answer.status, body: withSuppressed(JSON.parse(answer.body), suppressed) }
}
