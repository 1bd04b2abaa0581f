/**
 * What is posted to webhook endpoints: the envelope with the data of each kind (service-interface.txt, Events;
 * http/README.md "Events").
 */
import { z } from 'zod'
import { FURTHER_EVENT_KINDS } from '../../mail/event.ts'
import type { WebhookEventKind } from '../../mail/event.ts'
import { identifier, time } from './fields.ts'

const ofMessage = { message_id: identifier('msg'), recipient: z.string() }

const dataOf: Partial<Record<WebhookEventKind, z.ZodType>> = {
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
  return z.object({ event: z.literal(kind), timestamp: time(), data: dataOf[kind] ?? furtherData(kind) })
}

/** Of an email the two fields at least; of domains, IPs and endpoints what names them. */
function furtherData(kind: WebhookEventKind): z.ZodType {
  const isFurther = FURTHER_EVENT_KINDS.some((further) => further === kind)
  return isFurther && kind.startsWith('email.') ? z.looseObject(ofMessage) : z.record(z.string(), z.unknown())
}
