/**
 * What the HTTP interface calls: functions of the feature folders, handed over by the composition root. This is the
 * whole seam: `http` knows no store, no DNS and no SMTP.
 */
import type { ApiKeys } from '../senders/api-key.ts'
import type { Domains } from '../senders/domains.ts'
import type { MessageLookup } from '../messages/lookup-message.ts'
import type { AcceptMessage } from '../messages/send-request.ts'
import type { WebhookEndpoints } from '../webhooks/register-endpoint.ts'

export interface HealthReport {
  /** degraded: mail is still accepted. unavailable: it is not. */
  status: 'ok' | 'degraded' | 'unavailable'
  queue_depth: number
  oldest_due_seconds: number
  db: string
  smtp_out: string
}

export interface HttpFeatures {
  acceptMessage: AcceptMessage
  lookupMessage: MessageLookup['message']
  messageEvents: MessageLookup['events']
  domains: Omit<Domains, 'requireVerified' | 'publishedRecords' | 'checkDue' | 'stop'>
  apiKeys: ApiKeys
  webhookEndpoints: WebhookEndpoints
  health(): Promise<HealthReport>
}
