/**
 * What sending answers (http/README.md "Answer of a send" and "Batches"): flat bodies, three fields on the normal path.
 */
import { z } from 'zod'
import { count, identifier, time } from './fields.ts'
import { reasonSchema } from './suppression.ts'

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
    mime_bytes: count(),
    headers: z.array(z.object({ name: z.string(), value: z.string() })),
    links: z.array(z.string()),
    warnings: z.array(z.string()),
  })
  .meta({ id: 'Preview' })
