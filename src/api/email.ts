/**
 * POST /email/send, /email/preview and /email/batch on the wire (http/README.md "Sending", "Answer of a send" and
 * "Batches"): flat answers, three fields on the normal path.
 *
 * The schemas of the requests know JSON types alone: what else may be wrong is judged by `messages`, the recipient
 * before all other fields.
 */
import { z } from 'zod'
import { count, freeObject, identifier, optionalInteger, optionalText, time } from './fields.ts'
import { reasonSchema } from './suppression.ts'

/** http/README.md "Limits". */
export const MOST_ATTACHMENTS = 20
export const MOST_COPIES = 50
const MOST_REPLY_ADDRESSES = 10

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
  reply_to: z
    .union([z.string(), z.array(z.string()).max(MOST_REPLY_ADDRESSES)], 'expected a string or a list of strings')
    .nullish(),
  attachments: z.array(attachmentSchema).max(MOST_ATTACHMENTS).nullish(),
  headers: freeObject({ type: 'string' }).nullish(),
  tags: freeObject({ type: 'string' }).nullish(),
  metadata: freeObject(true).nullish(),
  send_at: optionalInteger('a Unix time in seconds'),
  expires_in: optionalInteger('a whole number of seconds'),
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

export const batchRequestSchema = (mostRecipients: number) =>
  z
    .object({ ...sharedFields, recipients: z.array(recipientSchema).max(mostRecipients).meta({ minItems: 1 }) })
    .meta({ id: 'BatchRequest' })

export const sendResultSchema = z
  .object({
    success: z.literal(true),
    message_id: identifier('msg'),
    timestamp: time(),
    /** Only off the normal path. */
    status: z.enum(['scheduled', 'suppressed']).optional(),
    reason: reasonSchema.optional(),
    /** Only with cc or bcc: in the order to, cc, bcc. */
    recipients: z
      .array(
        z.object({
          to: z.string(),
          message_id: identifier('msg'),
          status: z.literal('suppressed').optional(),
          reason: reasonSchema.optional(),
        }),
      )
      .optional(),
  })
  .meta({ id: 'SendResult' })

const acceptedRecipientSchema = z
  .object({
    index: count(),
    to: z.string(),
    success: z.literal(true),
    message_id: identifier('msg'),
    status: z.enum(['queued', 'scheduled', 'suppressed']),
    reason: reasonSchema.optional(),
  })
  .meta({ id: 'AcceptedRecipient' })

const refusedRecipientSchema = z
  .object({
    index: count(),
    to: z.string(),
    success: z.literal(false),
    error: z.object({
      code: z.enum(['invalid_recipient', 'invalid_request']),
      message: z.string(),
      details: z.string(),
    }),
  })
  .meta({ id: 'RefusedRecipient' })

export const batchResultSchema = z
  .object({
    success: z.literal(true),
    batch_id: identifier('bat'),
    timestamp: time(),
    total: count(),
    accepted: count(),
    rejected: count(),
    /** One entry for each recipient, in the order of the request. */
    results: z.array(z.union([acceptedRecipientSchema, refusedRecipientSchema])),
  })
  .meta({ id: 'BatchResult' })

export const previewSchema = z
  .object({
    subject: z.string(),
    html: z.string().nullable(),
    text: z.string().nullable(),
    /** Without the signature. */
    mime_bytes: count(),
    headers: z.array(z.object({ name: z.string(), value: z.string() })),
    links: z.array(z.string()),
    warnings: z.array(z.string()),
  })
  .meta({ id: 'Preview' })

export type PreviewJson = z.infer<typeof previewSchema>
export type SendBody = z.input<typeof sendSchema>
