/**
 * POST /email/send, /email/preview and /email/batch: JSON -> SendRequest or BatchRequest (http/README.md "Sending" and
 * "Batches").
 *
 * Only JSON types are judged here. What is wrong about them is handed on with the rest, because the recipient is judged
 * before all other fields and the answer lists everything (http/README.md "Order of checks", steps 9 and 10).
 */
import { z } from 'zod'
import type { BatchRequest, GivenAttachment, SendRequest, SharedFields } from '../../messages/accept/send-request.ts'
import { describeProblem, isObject } from '../exchange/read-fields.ts'
import type { ReadFields } from '../exchange/read-fields.ts'
import { freeObject, optionalText } from './optional.ts'

/** http/README.md "Limits". */
const MOST_ATTACHMENTS = 20
const MOST_COPIES = 50

const attachmentSchema = z.object({
  name: z.string(),
  content: z.string(),
  content_type: optionalText(),
  content_id: optionalText(),
})

const sharedFields = {
  from: z.string(),
  subject: z.string(),
  html: optionalText(),
  text: optionalText(),
  reply_to: optionalText(),
  attachments: z.array(attachmentSchema).max(MOST_ATTACHMENTS).nullish(),
  headers: freeObject({ type: 'string' }).nullish(),
  tags: freeObject({ type: 'string' }).nullish(),
  metadata: freeObject(true).nullish(),
  send_at: z.int().nullish(),
  expires_in: z.int().nullish(),
  ip_pool: optionalText(),
  stream: z
    .string()
    .meta({ enum: ['transactional', 'bulk'] })
    .nullish(),
  track: z.object({ opens: z.boolean().nullish(), clicks: z.boolean().nullish() }).nullish(),
  unsubscribe: z
    .union([z.literal(false), z.object({ list: optionalText(), url: optionalText() })], 'expected an object or false')
    .nullish(),
}

export const sendSchema = z
  .object({
    to: z.string(),
    cc: z.array(z.string()).max(MOST_COPIES).nullish(),
    bcc: z.array(z.string()).max(MOST_COPIES).nullish(),
    ...sharedFields,
    // Taken as it is: a copy could lose or misread keys such as __proto__.
    variables: freeObject(true).nullish(),
  })
  .meta({ id: 'SendRequest' })

/** Each recipient is judged by itself: a bad one need not refuse the others. */
const recipientSchema = z
  .unknown()
  .meta({ type: 'object', properties: { to: { type: 'string' } }, required: ['to'], additionalProperties: true })

export const batchSchema = (mostRecipients: number) =>
  z
    .object({ ...sharedFields, recipients: z.array(recipientSchema).max(mostRecipients).meta({ minItems: 1 }) })
    .meta({ id: 'BatchRequest' })

export function toSendRequest(read: ReadFields<unknown>): SendRequest {
  const { body, problems } = read
  const hasBadRecipient = problems.some(({ path }) => path === 'to')
  const variables = own(body, 'variables')
  return {
    ...toSharedFields(read),
    to: hasBadRecipient ? undefined : textOf(body, 'to'),
    cc: textsOf(body, 'cc'),
    bcc: textsOf(body, 'bcc'),
    variables: isObject(variables) ? variables : null,
  }
}

export function toBatchRequest(read: ReadFields<unknown>, options: { isStrict: boolean }): BatchRequest {
  const { body, problems } = read
  const recipients = own(body, 'recipients')
  // The whole request is refused then: there is no need to hand on a million entries.
  const isTooLong = problems.some(({ path }) => path === 'recipients')
  const entries = Array.isArray(recipients) && !isTooLong ? recipients : undefined
  return {
    recipients: entries?.map((entry: unknown) => (isObject(entry) ? entry : null)),
    isStrict: options.isStrict,
    ...toSharedFields(read),
  }
}

function toSharedFields({ body, problems }: ReadFields<unknown>): SharedFields {
  return {
    from: textOf(body, 'from'),
    subject: textOf(body, 'subject'),
    html: textOf(body, 'html'),
    text: textOf(body, 'text'),
    replyTo: textOf(body, 'reply_to'),
    attachments: toAttachments(own(body, 'attachments')),
    headers: objectOf(body, 'headers'),
    tags: objectOf(body, 'tags'),
    metadata: objectOf(body, 'metadata'),
    sendAt: wholeNumberOf(body, 'send_at'),
    expiresIn: wholeNumberOf(body, 'expires_in'),
    ipPool: textOf(body, 'ip_pool'),
    stream: textOf(body, 'stream'),
    track: toTrack(objectOf(body, 'track')),
    unsubscribe: toUnsubscribe(own(body, 'unsubscribe')),
    wrongTypes: problems.map(describeProblem),
  }
}

function toAttachments(value: unknown): GivenAttachment[] {
  if (!Array.isArray(value)) return []
  return value.slice(0, MOST_ATTACHMENTS).map((entry: unknown) => {
    const body = isObject(entry) ? entry : {}
    return {
      name: textOf(body, 'name'),
      content: textOf(body, 'content'),
      contentType: textOf(body, 'content_type'),
      contentId: textOf(body, 'content_id'),
    }
  })
}

function toTrack(given: Record<string, unknown> | undefined): SharedFields['track'] {
  return given === undefined ? undefined : { opens: flagOf(given, 'opens'), clicks: flagOf(given, 'clicks') }
}

function toUnsubscribe(value: unknown): SharedFields['unsubscribe'] {
  if (value === false) return false
  return isObject(value) ? { list: textOf(value, 'list'), url: textOf(value, 'url') } : undefined
}

function textOf(body: Record<string, unknown>, name: string): string | undefined {
  const value = own(body, name)
  return typeof value === 'string' ? value : undefined
}

/** An entry that is no text counts as an empty one, which is no address. */
function textsOf(body: Record<string, unknown>, name: string): string[] {
  const value = own(body, name)
  if (!Array.isArray(value)) return []
  return value.slice(0, MOST_COPIES).map((entry: unknown) => (typeof entry === 'string' ? entry : ''))
}

function objectOf(body: Record<string, unknown>, name: string): Record<string, unknown> | undefined {
  const value = own(body, name)
  return isObject(value) ? value : undefined
}

function wholeNumberOf(body: Record<string, unknown>, name: string): number | undefined {
  const value = own(body, name)
  return typeof value === 'number' && Number.isSafeInteger(value) ? value : undefined
}

function flagOf(body: Record<string, unknown>, name: string): boolean | undefined {
  const value = own(body, name)
  return typeof value === 'boolean' ? value : undefined
}

/** Nothing is inherited: a field that is not in the JSON is not there. */
function own(body: Record<string, unknown>, name: string): unknown {
  return Object.hasOwn(body, name) ? body[name] : undefined
}
