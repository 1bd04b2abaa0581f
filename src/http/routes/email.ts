/**
 * POST /email/send, /email/batch and /email/preview (http/README.md "Sending" and "Batches"). Answers go out only after
 * the commit; that of a send has exactly three fields on the normal path.
 */
import { toUnixSeconds } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type {
  Acceptance,
  AcceptedBatch,
  AcceptedMessages,
  Caller,
  Idempotent,
} from '../../messages/accept/send-request.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { batchSchema, sendSchema, toBatchRequest, toSendRequest } from '../requests/email.ts'
import { batchResultSchema, previewSchema, sendResultSchema } from '../responses/email.ts'
import { dataSchema, lenientRoute, success } from '../exchange/route.ts'
import type { Answer, ApiRequest, Route } from '../exchange/route.ts'
import { batchBody, replayedAnswer, sendBody, sentBatchBody, sentBody } from '../exchange/send-answers.ts'

export interface EmailRoutesOptions {
  features: Pick<HttpFeatures, 'acceptMessage' | 'acceptBatch' | 'previewMessage'>
  mostMailBytes: number
  mostRecipients: number
}

const OK = 200

export function emailRoutes(options: EmailRoutesOptions): Route[] {
  return [sendRoute(options), batchRoute(options), previewRoute(options)]
}

function sendRoute({ features, mostMailBytes }: EmailRoutesOptions): Route {
  return lenientRoute({
    method: 'POST',
    path: '/email/send',
    summary: 'Sends a single email.',
    scope: 'send',
    body: sendSchema,
    bodyLimit: { bytes: mostMailBytes, code: 'attachment_too_large' },
    ok: { status: OK, schema: sendResultSchema },
    idempotency: 'with-message',
    errors: ['invalid_recipient', 'domain_not_verified', 'ip_not_warmed'],
    handler(request, fields) {
      const accepting = features.acceptMessage(toSendRequest(fields), callerOf(request), idempotent(request, sendBody))
      return answerAccepted(request, accepting, sentBody)
    },
  })
}

function batchRoute({ features, mostMailBytes, mostRecipients }: EmailRoutesOptions): Route {
  return lenientRoute({
    method: 'POST',
    path: '/email/batch',
    summary: 'Sends one message template to many recipients with variable substitution.',
    scope: 'send',
    body: batchSchema(mostRecipients),
    bodyLimit: { bytes: mostMailBytes, code: 'payload_too_large' },
    ok: { status: OK, schema: batchResultSchema },
    idempotency: 'with-message',
    errors: ['invalid_recipient', 'domain_not_verified', 'ip_not_warmed', 'attachment_too_large'],
    async handler(request, fields) {
      const given = toBatchRequest(fields, { isStrict: isStrict(request) })
      const caller: Caller = { ...callerOf(request), source: 'batch' }
      const accepting = features.acceptBatch(given, caller, idempotent(request, batchBody))
      return answerAccepted(request, accepting, sentBatchBody)
    },
  })
}

/** Without the fields of the request: they may be large, and the commit takes its time. */
async function answerAccepted<Accepted extends AcceptedMessages | AcceptedBatch>(
  request: ApiRequest,
  accepting: Promise<Acceptance<Accepted>>,
  body: (accepted: Accepted) => object,
): Promise<Answer> {
  const acceptance = await accepting
  if (acceptance.kind === 'replayed') return replayedAnswer(request, acceptance)
  const { accepted } = acceptance
  // Only where it is more than a minute away (http/README.md "Answer of a send").
  if (accepted.estimatedStartAt !== null) {
    request.setHeader('X-Service-Estimated-Start', String(toUnixSeconds(accepted.estimatedStartAt)))
  }
  return { status: OK, body: body(accepted) }
}

function previewRoute({ features, mostMailBytes }: EmailRoutesOptions): Route {
  return lenientRoute({
    method: 'POST',
    path: '/email/preview',
    summary: 'Renders an email as it would be sent; sends and stores nothing.',
    scope: 'send',
    body: sendSchema,
    bodyLimit: { bytes: mostMailBytes, code: 'payload_too_large' },
    ok: { status: OK, schema: dataSchema(previewSchema) },
    errors: ['invalid_recipient', 'domain_not_verified', 'attachment_too_large'],
    handler: async (request, fields) =>
      success(OK, await features.previewMessage(toSendRequest(fields), callerOf(request))),
  })
}

/** A misspelt word must not let bad recipients pass. */
function isStrict({ headers }: ApiRequest): boolean {
  const mode = String(headers['x-batch-validation'] ?? 'permissive').toLowerCase()
  if (mode === 'strict' || mode === 'permissive') return mode === 'strict'
  throw new ServiceError('invalid_request', 'X-Batch-Validation: expected strict or permissive', { status: 400 })
}

export function callerOf({ requestId, principal: { apiKeyId, mode, domains, label } }: ApiRequest): Caller {
  return { apiKeyId, mode, domains, source: 'api', facts: { request_id: requestId, api_key: label } }
}

/** The answer is composed before the commit, so that it is kept together with the messages. */
export function idempotent<Accepted>(
  { idempotency: entry }: ApiRequest,
  body: (accepted: Accepted) => object,
): Idempotent<Accepted> | null {
  if (entry === null) return null
  return { entry, answer: (accepted) => ({ status: OK, body: JSON.stringify(body(accepted)) }) }
}
