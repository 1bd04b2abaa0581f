/**
 * Webhook endpoints, their deliveries, and the events that are posted to them, on the wire (http/README.md "Webhooks"
 * and "Events"). A given secret stands in no answer, a generated one in one.
 */
import { z } from 'zod'
import { FURTHER_EVENT_KINDS, type WebhookEventKind } from '../mail/event.ts'
import { count, identifier, paging, optionalText, textList, textOrNull, time, timeOrNull } from './fields.ts'

/** Above the number of event kinds: repeats and unknown kinds are named one by one. */
const MOST_EVENTS = 50

const eventList = () => textList(MOST_EVENTS).nullish()

const MOST_DOMAINS = 1_000

const domainList = () => textList(MOST_DOMAINS).nullish()

export const registerEndpointSchema = z.object({
  url: z.string(),
  events: eventList(),
  secret: optionalText(),
  include: eventList(),
  description: optionalText(),
  mode: z.enum(['live', 'test']).nullish(),
  domains: domainList(),
})

export const changeEndpointSchema = z.object({
  url: optionalText(),
  events: eventList(),
  include: eventList(),
  description: optionalText(),
  domains: domainList(),
  status: z.enum(['enabled', 'disabled']).nullish(),
})

export const tryEndpointSchema = z.object({ event: optionalText() })

export const rotateSecretSchema = z.object({ secret: optionalText(), grace_seconds: z.int().nullish() })

/** Unix seconds. */
const givenTime = () => z.int().min(0).max(1e12).nullish()

export const replayRangeSchema = z.object({
  since: givenTime(),
  until: givenTime(),
  status: z.enum(['failed', 'skipped', 'all']).nullish(),
  events: eventList(),
})

export const listEndpointsSchema = z.object(paging())

export const listDeliveriesSchema = z.object({
  status: z.enum(['pending', 'succeeded', 'failed', 'skipped']).nullish(),
  event: optionalText(),
  message_id: optionalText(),
  ...paging(),
})

export const streamSchema = z.object({
  /** Kinds with commas between them. */
  events: optionalText(),
  /** Those of one message. */
  message_id: optionalText(),
})

export const webhookEndpointSchema = z
  .object({
    id: identifier('wh'),
    url: z.string(),
    events: z.array(z.string()),
    include: z.array(z.string()),
    description: textOrNull(),
    /** `all` on a server for development. */
    mode: z.enum(['live', 'test', 'all']),
    /** Empty: all. */
    domains: z.array(z.string()),
    status: z.enum(['enabled', 'disabled']),
    disabled_reason: z.enum(['failing', 'manual']).nullable(),
    secret_set: z.literal(true),
    created_at: time(),
    updated_at: time(),
    last_success_at: timeOrNull(),
    last_failure_at: timeOrNull(),
    consecutive_failures: count(),
    pending: count(),
    dead_letters: count(),
  })
  .meta({ id: 'WebhookEndpoint' })

/** `secret` only where it was generated, and not in a replay of the same request. */
export const createdWebhookSchema = z
  .object({ ...webhookEndpointSchema.shape, secret: z.string().optional() })
  .meta({ id: 'CreatedWebhookEndpoint' })

export const removedWebhookSchema = z.object({ id: identifier('wh'), deleted: z.literal(true) })

export const rotatedSecretSchema = z.object({ id: identifier('wh'), secret: z.string().optional(), switch_at: time() })

const ofPost = { status: z.int().nullable(), duration_ms: count(), error: textOrNull(), answer: z.string() }

export const webhookTrialSchema = z.object({ ok: z.boolean(), ...ofPost })

const ofDelivery = {
  id: identifier('whd'),
  webhook_id: identifier('wh'),
  event_id: identifier('evt'),
  event: z.string(),
  message_id: identifier('msg').nullable(),
  status: z.enum(['pending', 'succeeded', 'failed', 'skipped']),
  created_at: time(),
  next_attempt_at: timeOrNull(),
  ended_at: timeOrNull(),
}

export const webhookDeliverySchema = z.object({ ...ofDelivery, attempts: count() }).meta({ id: 'WebhookDelivery' })

export const webhookDeliveryDetailSchema = z
  .object({ ...ofDelivery, body: z.string(), attempts: z.array(z.object({ n: count(), at: time(), ...ofPost })) })
  .meta({ id: 'WebhookDeliveryDetail' })

export const replayedSchema = z.object({ queued: count() })

const ofMessage = { message_id: identifier('msg'), recipient: z.string() }

const EVENT_DATA: Partial<Record<WebhookEventKind, z.ZodType>> = {
  'email.delivered': z.object({ ...ofMessage, isp: z.string() }),
  'email.bounced': z.object({
    ...ofMessage,
    bounce_type: z.enum(['hard', 'soft', 'block', 'undetermined', 'suppressed']),
    // digit.digit.digit, the last two with up to three digits
    bounce_code: z.string().regex(/^\d\.\d{1,3}\.\d{1,3}$/),
    bounce_description: z.string(),
  }),
  'email.complained': z.object({ ...ofMessage, isp: z.string() }),
  'email.opened': z.object(ofMessage),
  'email.clicked': z.object({ ...ofMessage, url: z.string() }),
}

/** The whole body of a delivery. */
export function webhookEventSchema(kind: WebhookEventKind): z.ZodType {
  return z.object({ event: z.literal(kind), timestamp: time(), data: EVENT_DATA[kind] ?? furtherData(kind) })
}

/** Of an email the two fields at least; of domains, IPs and endpoints what names them. */
function furtherData(kind: WebhookEventKind): z.ZodType {
  const isFurther = FURTHER_EVENT_KINDS.some((further) => further === kind)
  return isFurther && kind.startsWith('email.') ? z.looseObject(ofMessage) : z.record(z.string(), z.unknown())
}

export type WebhookEndpointJson = z.infer<typeof webhookEndpointSchema>
export type WebhookDeliveryJson = z.infer<typeof webhookDeliverySchema>
export type WebhookDeliveryDetailJson = z.infer<typeof webhookDeliveryDetailSchema>
export type WebhookTrialJson = z.infer<typeof webhookTrialSchema>
