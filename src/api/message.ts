/** Messages and batches on the wire (http/README.md "Messages" and "Batch lookup and cancel"). */
import { z } from 'zod'
import { MESSAGE_STATES } from '../mail/message.ts'
import { count, identifier, paging, optionalText, textOrNull, time, timeOrNull, timeParameter } from './fields.ts'
import type { CamelFields } from './names.ts'

export const searchSchema = z.object({
  recipient: optionalText(),
  from: optionalText(),
  state: z
    .string()
    .meta({ enum: [...MESSAGE_STATES] })
    .nullish(),
  batch_id: optionalText(),
  /** Words of it, in any order. */
  subject: optionalText().meta({ description: 'Words of the subject, in any order.' }),
  /** `key:value` */
  tag: optionalText(),
  isp: optionalText(),
  ip: optionalText(),
  since: timeParameter(),
  until: timeParameter(),
  ...paging(),
})

/** `remote`: the html may show images from elsewhere. */
export const contentQuerySchema = z.object({ images: z.enum(['remote']).nullish() })

/** Without the signature, and without tracking. */
export const contentSchema = z
  .object({
    subject: z.string(),
    /** null: none, or a submitted mail, which is as `source` says. */
    html: textOrNull(),
    text: textOrNull(),
    mime_bytes: z.int().min(0),
    headers: z.array(z.object({ name: z.string(), value: z.string() })),
    /** At most the first 256 Ki characters. */
    source: z.string(),
  })
  .meta({ id: 'MessageContent' })

const messageStateSchema = z.enum(MESSAGE_STATES).meta({ id: 'MessageState' })

const ofAttempt = { n: z.int().min(1), at: time(), ip: textOrNull(), mx: textOrNull() }

const attemptSchema = z
  .object({ ...ofAttempt, tls: textOrNull(), result: z.string(), reply: z.string(), duration_ms: z.number() })
  .meta({ id: 'DeliveryAttempt' })

/** A line of the timeline. */
export const eventSchema = z
  .object({ id: identifier('evt'), event: z.string(), timestamp: time(), data: z.record(z.string(), z.unknown()) })
  .meta({ id: 'Event' })

const bounceSchema = z
  .object({
    type: z.enum(['hard', 'soft', 'block', 'undetermined', 'suppressed']),
    // digit.digit.digit, the last two with up to three digits
    code: z.string().regex(/^\d\.\d{1,3}\.\d{1,3}$/),
    category: z.string(),
    description: z.string(),
    at: time(),
    late: z.boolean(),
  })
  .meta({ id: 'Bounce' })

/** As in a list: without attempts. */
export const listedMessageSchema = z
  .object({
    message_id: identifier('msg'),
    batch_id: identifier('bat').nullable(),
    state: messageStateSchema,
    recipient: z.string(),
    from: z.string(),
    subject: z.string(),
    stream: z.enum(['transactional', 'bulk']),
    tags: z.record(z.string(), z.string()),
    metadata: z.record(z.string(), z.unknown()),
    isp: textOrNull(),
    ip: textOrNull(),
    ip_pool: z.string(),
    created_at: time(),
    send_at: timeOrNull(),
    expires_at: time(),
    next_attempt_at: timeOrNull(),
    delivered_at: timeOrNull(),
    bounced_at: timeOrNull(),
    complained_at: timeOrNull(),
    bounce: bounceSchema.nullable(),
    opens: count(),
    clicks: count(),
    machine_opens: count(),
    machine_clicks: count(),
    uncertain: z.boolean(),
    retry_of: identifier('msg').nullable(),
  })
  .meta({ id: 'ListedMessage' })

export const messageSchema = z
  .object({ ...listedMessageSchema.shape, attempts: z.array(attemptSchema) })
  .meta({ id: 'Message' })

export const explanationSchema = z
  .object({
    message_id: identifier('msg'),
    state: messageStateSchema,
    summary: z.string(),
    waiting_for: z
      .enum([
        'send_at',
        'retry_delay',
        'warmup_day',
        'warmup_hour',
        'provider_share',
        'rate',
        'connections',
        'sockets',
        'suspension',
        'ip_paused',
        'held',
      ])
      .nullable(),
    reply: textOrNull(),
    category: textOrNull(),
    rule: textOrNull(),
    next_attempt_at: timeOrNull(),
    checks: z.array(z.object({ check: z.string(), status: z.string(), seen: textOrNull() })),
    similar: z.object({ isp: z.string(), last_hour: z.object({ attempts: count(), deferred: count() }) }).nullable(),
    advice: z.array(z.string()),
  })
  .meta({ id: 'Explanation' })

export const transcriptSchema = z
  .object({
    ...ofAttempt,
    /** null: not kept, or no longer. */
    dialogue: textOrNull(),
  })
  .meta({ id: 'Transcript' })

export const canceledSchema = z.object({ message_id: identifier('msg'), state: z.literal('canceled') })

export const retriedSchema = z.object({
  message_id: identifier('msg'),
  /** null: the same message, due now. */
  retry_of: identifier('msg').nullable(),
  state: messageStateSchema,
})

export const batchSchema = z
  .object({
    batch_id: identifier('bat'),
    created_at: time(),
    from: z.string(),
    subject: z.string(),
    total: count(),
    accepted: count(),
    rejected: count(),
    states: z.object(Object.fromEntries(MESSAGE_STATES.map((state) => [state, count()]))),
    opened: count(),
    clicked: count(),
    complained: count(),
  })
  .meta({ id: 'Batch' })

export const canceledBatchSchema = z.object({ batch_id: identifier('bat'), canceled: count(), not_canceled: count() })

/** As it came; null: not asked for. */
export type ContentJson = z.infer<typeof contentSchema>
export type MessageQuery = CamelFields<z.infer<typeof searchSchema>>
export type MessageStateJson = z.infer<typeof messageStateSchema>
export type AttemptJson = z.infer<typeof attemptSchema>
export type EventJson = z.infer<typeof eventSchema>
export type ListedMessageJson = z.infer<typeof listedMessageSchema>
export type MessageJson = z.infer<typeof messageSchema>
export type ExplanationJson = z.infer<typeof explanationSchema>
export type TranscriptJson = z.infer<typeof transcriptSchema>
export type RetriedMessageJson = z.infer<typeof retriedSchema>
export type BatchJson = z.infer<typeof batchSchema>
