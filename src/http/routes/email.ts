/**
 * POST /email/send, /email/batch and /email/preview (http/README.md "Sending" and "Batches"). Answers go out only after
 * the commit. What is wrong about JSON types is handed on with the rest, because the recipient is judged before all
 * other fields and the answer lists everything.
 */
import * as wire from '../../api/email.ts'
import { isEmptyList } from '../../api/fields.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import type * as accept from '../../messages/accept/send-request.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { describeProblem, type ReadFields } from '../exchange/read-fields.ts'
import { OK, okData, success, type Answer } from '../exchange/answer.ts'
import { routesOf, type ApiRequest, type Route } from '../exchange/route.ts'
import { batchBody, replayedAnswer, sendBody, sentBatchBody, sentBody } from '../exchange/send-answers.ts'

const { lenientPost } = routesOf('send')

interface EmailRoutesOptions {
  features: Pick<HttpFeatures, 'acceptMessage' | 'acceptBatch' | 'previewMessage'>
  mostMailBytes: number
  mostRecipients: number
}

export function emailRoutes(options: EmailRoutesOptions): Route[] {
  return [sendRoute(options), batchRoute(options), previewRoute(options)]
}

function sendRoute({ features, mostMailBytes }: EmailRoutesOptions): Route {
  return lenientPost('/email/send', {
    summary: 'Sends a single email.',
    body: wire.sendSchema,
    bodyLimit: { bytes: mostMailBytes, code: 'attachment_too_large' },
    ok: { status: OK, schema: wire.sendResultSchema },
    idempotency: 'with-message',
    errors: ['invalid_recipient', 'domain_not_verified', 'ip_not_warmed'],
    handler(request, fields) {
      const given = sendRequest(fields)
      warnOfBraces(request, given)
      const accepting = features.acceptMessage(given, callerOf(request), idempotent(request, sendBody))
      return answerAccepted(request, accepting, sentBody)
    },
  })
}

function batchRoute({ features, mostMailBytes, mostRecipients }: EmailRoutesOptions): Route {
  return lenientPost('/email/batch', {
    summary: 'Sends one message template to many recipients with variable substitution.',
    body: wire.batchRequestSchema(mostRecipients),
    bodyLimit: { bytes: mostMailBytes, code: 'payload_too_large' },
    ok: { status: OK, schema: wire.batchResultSchema },
    idempotency: 'with-message',
    errors: ['invalid_recipient', 'domain_not_verified', 'ip_not_warmed', 'attachment_too_large'],
    async handler(request, fields) {
      const given = batchRequest(fields, isStrict(request))
      const caller: accept.Caller = { ...callerOf(request), source: 'batch' }
      const accepting = features.acceptBatch(given, caller, idempotent(request, batchBody))
      return answerAccepted(request, accepting, sentBatchBody)
    },
  })
}

/** Without the fields of the request: they may be large, and the commit takes its time. */
async function answerAccepted<Accepted extends accept.AcceptedMessages | accept.AcceptedBatch>(
  request: ApiRequest,
  accepting: Promise<accept.Acceptance<Accepted>>,
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
  return lenientPost('/email/preview', {
    summary: 'Renders an email as it would be sent; sends and stores nothing.',
    body: wire.sendSchema,
    bodyLimit: { bytes: mostMailBytes, code: 'payload_too_large' },
    ok: okData(wire.previewSchema),
    errors: ['invalid_recipient', 'domain_not_verified', 'attachment_too_large'],
    async handler(request, fields) {
      const given = sendRequest(fields)
      warnOfBraces(request, given)
      return success(await features.previewMessage(given, callerOf(request)))
    },
  })
}

/** Braces are ordinary text then, and a forgotten field would be seen by the recipient alone. */
function warnOfBraces(request: ApiRequest, { variables, subject, html, text }: accept.SendRequest): void {
  const hasBraces = [subject, html, text].some((part) => part?.includes('{{'))
  if (variables === null && hasBraces) request.warn('variables: not given: {{ stays as it is')
}

/** A misspelt word must not let bad recipients pass. */
function isStrict({ headers }: ApiRequest): boolean {
  const mode = String(headers['x-batch-validation'] ?? 'permissive').toLowerCase()
  if (mode === 'strict' || mode === 'permissive') return mode === 'strict'
  throw new ServiceError('invalid_request', 'X-Batch-Validation: expected strict or permissive', { status: 400 })
}

export function callerOf({ requestId, principal: { apiKeyId, mode, domains, label } }: ApiRequest): accept.Caller {
  return { apiKeyId, mode, domains, source: 'api', facts: { request_id: requestId, api_key: label } }
}

/** The answer is composed before the commit, so that it is kept together with the messages. */
export function idempotent<Accepted>(
  { idempotency: entry }: ApiRequest,
  body: (accepted: Accepted) => object,
): accept.Idempotent<Accepted> | null {
  if (entry === null) return null
  return { entry, answer: (accepted) => ({ status: OK, body: JSON.stringify(body(accepted)) }) }
}

function sendRequest(read: ReadFields<unknown>): accept.SendRequest {
  const { body, problems } = read
  const hasBadRecipient = problems.some(({ path }) => path === 'to')
  const given = own(body, 'variables')
  const variables = isEmptyList(given) ? {} : given
  return {
    ...sharedFields(read),
    to: hasBadRecipient ? undefined : textOf(body, 'to'),
    cc: textsOf(body, 'cc'),
    bcc: textsOf(body, 'bcc'),
    variables: isPlainObject(variables) ? variables : null,
  }
}

function batchRequest(read: ReadFields<unknown>, isStrictBatch: boolean): accept.BatchRequest {
  const { body, problems } = read
  const recipients = own(body, 'recipients')
  // The whole request is refused then: there is no need to hand on a million entries.
  const isTooLong = problems.some(({ path }) => path === 'recipients')
  const entries = Array.isArray(recipients) && !isTooLong ? recipients : undefined
  return {
    recipients: entries?.map((entry: unknown) => (isPlainObject(entry) ? entry : null)),
    isStrict: isStrictBatch,
    ...sharedFields(read),
  }
}

function sharedFields({ body, problems, contents }: ReadFields<unknown>): accept.SharedFields {
  return {
    from: textOf(body, 'from'),
    subject: textOf(body, 'subject'),
    html: textOf(body, 'html'),
    text: textOf(body, 'text'),
    replyTo: textOf(body, 'reply_to') ?? textsOf(body, 'reply_to'),
    attachments: attachmentsOf(own(body, 'attachments'), contents),
    headers: objectOf(body, 'headers'),
    tags: objectOf(body, 'tags'),
    metadata: objectOf(body, 'metadata'),
    sendAt: wholeNumberOf(body, 'send_at'),
    expiresIn: wholeNumberOf(body, 'expires_in'),
    ipPool: textOf(body, 'ip_pool'),
    stream: textOf(body, 'stream'),
    track: trackOf(objectOf(body, 'track')),
    unsubscribe: unsubscribeOf(own(body, 'unsubscribe')),
    wrongTypes: problems.map(describeProblem),
  }
}

function attachmentsOf(value: unknown, contents: ReadFields<unknown>['contents']): accept.GivenAttachment[] {
  if (!Array.isArray(value)) return []
  return value.slice(0, wire.MOST_ATTACHMENTS).map((entry: unknown, index) => {
    const body = isPlainObject(entry) ? entry : {}
    return {
      name: textOf(body, 'name'),
      content: contents[index] ?? textOf(body, 'content'),
      contentType: textOf(body, 'content_type'),
      contentId: textOf(body, 'content_id'),
    }
  })
}

function trackOf(given: Record<string, unknown> | undefined): accept.SharedFields['track'] {
  return given === undefined ? undefined : { opens: flagOf(given, 'opens'), clicks: flagOf(given, 'clicks') }
}

function unsubscribeOf(value: unknown): accept.SharedFields['unsubscribe'] {
  if (value === false) return false
  return isPlainObject(value) ? { list: textOf(value, 'list'), url: textOf(value, 'url') } : undefined
}

/** An entry that is no text counts as an empty one, which is no address. */
function textsOf(body: Record<string, unknown>, name: string): string[] {
  const value = own(body, name)
  if (!Array.isArray(value)) return []
  return value.slice(0, wire.MOST_COPIES).map((entry: unknown) => (typeof entry === 'string' ? entry : ''))
}

const textOf = ownIf((value) => typeof value === 'string')
const objectOf = ownIf(isPlainObject)
const wholeNumberOf = ownIf((value): value is number => Number.isSafeInteger(value))
const flagOf = ownIf((value) => typeof value === 'boolean')

/** Reads a field that has this type; else undefined. */
function ownIf<Value>(isWanted: (value: unknown) => value is Value) {
  return (body: Record<string, unknown>, name: string): Value | undefined => {
    const value = own(body, name)
    return isWanted(value) ? value : undefined
  }
}

/** Nothing is inherited: a field that is not in the JSON is not there. */
function own(body: Record<string, unknown>, name: string): unknown {
  return Object.hasOwn(body, name) ? body[name] : undefined
}
