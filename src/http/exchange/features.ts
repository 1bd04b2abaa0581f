/**
 * What the HTTP interface calls: functions of the feature folders, handed over by the composition root. This is the
 * whole seam: `http` knows no store, no DNS and no SMTP.
 */
import { ServiceError } from '../../base/errors.ts'
import type { HealthJson } from '../../api/health.ts'
import type { ApiKeys } from '../../senders/api-key.ts'
import type { Domains } from '../../senders/domains.ts'
import type { Warmup } from '../../egress/moves/warmup.ts'
import type { IdempotencyKeys } from '../../messages/accept/idempotency.ts'
import type { MessageActions } from '../../messages/lookup/act-on-message.ts'
import type { MessageLookup } from '../../messages/lookup/lookup-message.ts'
import type { MessageContent } from '../../messages/lookup/message-content.ts'
import type { MailRefusal } from '../../messages/accept/mail-refusal.ts'
import type { PreviewMessage } from '../../messages/accept/preview-message.ts'
import type { AcceptBatch, AcceptMessage } from '../../messages/accept/send-request.ts'
import type { Engagement } from '../../messages/engagement/record-engagement.ts'
import type { SendingRate } from '../../messages/accept/sending-rate.ts'
import type { Statistics } from '../../messages/statistics/statistics.ts'
import type { Suppressions } from '../../messages/suppressions/suppressions.ts'
import type { Unsubscribing } from '../../messages/engagement/unsubscribe.ts'
import type { WebhookDeliveries } from '../../webhooks/deliveries.ts'
import type { WebhookEndpoints } from '../../webhooks/endpoints.ts'
import type { EventStreams } from '../../webhooks/event-stream.ts'
import type { TryEndpoint } from '../../webhooks/try-endpoint.ts'
import type { Passkeys } from './passkeys.ts'
import type { Logins } from './logins.ts'
import type { Administration } from './operator-features.ts'

export interface HealthReport extends Omit<HealthJson, 'status'> {
  /** degraded: something is amiss. unavailable: requests had better go to another node. */
  status: HealthJson['status'] | 'unavailable'
}

export interface TrackingFeatures {
  engagement: Pick<Engagement, 'open' | 'click'>
  unsubscribing: Unsubscribing
}

export interface HttpFeatures extends TrackingFeatures {
  acceptMessage: AcceptMessage
  acceptBatch: AcceptBatch
  previewMessage: PreviewMessage
  messages: MessageLookup & MessageActions & { content: MessageContent }
  suppressions: Suppressions
  statistics: Pick<Statistics, 'find'>
  idempotency: IdempotencyKeys
  sendingRate: Pick<SendingRate, 'takeRequest' | 'state'>
  mailRefusal: MailRefusal
  domains: Omit<Domains, 'forgetAll' | 'requireVerified' | 'publishedRecords' | 'checkDue' | 'stop'>
  warmup: Omit<Warmup, 'closeDays' | 'checkGates'>
  /** Unix milliseconds. */
  now(): number
  administration: Administration
  apiKeys: Omit<ApiKeys, 'forgetAll'>
  logins: Logins
  passkeys: Passkeys
  /** Where people find the console, e.g. `https://mail.acme.com/console/`; null: no door serves it. */
  consoleUrl: string | null
  webhookEndpoints: WebhookEndpoints
  webhookDeliveries: WebhookDeliveries
  tryWebhook: TryEndpoint
  eventStreams: Pick<EventStreams, 'open'>
  health(): Promise<HealthReport>
}

/** Where the console is. ServiceError `conflict` when nowhere. */
export function servedConsole(consoleUrl: string | null): string {
  if (consoleUrl !== null) return consoleUrl
  throw new ServiceError('conflict', 'no door serves the console: see console.enabled and listen.http')
}
