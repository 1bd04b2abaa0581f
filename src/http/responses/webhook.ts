/**
 * What the webhook routes answer (http/README.md "Webhooks"): never a given secret, a generated one once.
 */
import { z } from 'zod'
import { count, identifier, textOrNull, time, timeOrNull } from './fields.ts'

export const webhookEndpointSchema = z
  .object({
    id: identifier('wh'),
    url: z.string(),
    events: z.array(z.string()),
    include: z.array(z.string()),
    description: textOrNull(),
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

export const webhookTrialSchema = z.object({
  ok: z.boolean(),
  status: z.int().nullable(),
  duration_ms: count(),
  error: textOrNull(),
  answer: z.string(),
})

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
  .object({
    ...ofDelivery,
    body: z.string(),
    attempts: z.array(
      z.object({
        n: count(),
        at: time(),
        status: z.int().nullable(),
        duration_ms: count(),
        error: textOrNull(),
        answer: z.string(),
      }),
    ),
  })
  .meta({ id: 'WebhookDeliveryDetail' })

export const replayedSchema = z.object({ queued: count() })
