/**
 * Samples of every kind of event, for trying out an endpoint: shaped as the real ones, about nobody. Pure but for the
 * identifiers.
 */
import { newIdentifier } from '../base/identifier.ts'
import { eventBody } from '../mail/event.ts'
import type { WebhookEventKind } from '../mail/event.ts'

const RECIPIENT = 'ada@example.com'
const URL = 'https://example.com/'
const DOMAIN = { domain: 'example.com' }
const IP = { ip: '192.0.2.10' }

/** What comes behind message and recipient, for kinds of an email; else everything. */
const DATA: Record<WebhookEventKind, Record<string, string>> = {
  'email.delivered': { isp: 'gmail' },
  'email.bounced': {
    bounce_type: 'hard',
    bounce_code: '5.1.1',
    bounce_description: '550 5.1.1 The email account does not exist',
  },
  'email.complained': { isp: 'yahoo' },
  'email.opened': {},
  'email.clicked': { url: URL },
  'email.deferred': { isp: 'gmail', description: '451 4.7.1 Try again later', next_attempt_at: '0' },
  'email.suppressed': { reason: 'hard_bounce' },
  'email.unsubscribed': { list: 'bulk' },
  'email.canceled': {},
  'domain.verified': DOMAIN,
  'domain.degraded': DOMAIN,
  'ip.warmup.advanced': IP,
  'ip.warmup.held': IP,
  'ip.warmup.completed': IP,
  'ip.blocklisted': IP,
  'webhook.test': { description: 'Sent by hand, to try out the endpoint' },
}

export interface SampleEvent {
  eventId: string
  kind: WebhookEventKind
  body: string
}

/** `now` in Unix milliseconds. */
export function sampleEvent(kind: WebhookEventKind, now: number): SampleEvent {
  const ofMessage = kind.startsWith('email.') ? { message_id: newIdentifier('msg', now), recipient: RECIPIENT } : {}
  const id = newIdentifier('evt', now)
  const body = eventBody({ id, kind, at: now, data: { ...ofMessage, ...DATA[kind] } })
  return { eventId: id, kind, body }
}
