/** Webhook endpoints and the deliveries on their way to them as text (http/README.md "Webhooks"). Pure. */
import type { WebhookEndpointJson } from '../../api/webhook.ts'
import { localTime, preciseTime, sheetText } from '../shared/print.ts'

/** One event on its way to one endpoint, as the API lists it; times in Unix seconds. */
export interface DeliveryView {
  id: string
  event_id: string
  event: string
  message_id: string | null
  status: string
  /** So far. */
  attempts: number
  created_at: number
  next_attempt_at: number | null
}

export const ENDPOINT_HEADS = ['ID', 'STATUS', 'PENDING', 'DEAD LETTERS', 'LAST SUCCESS', 'LAST FAILURE', 'URL']

export function endpointRow(endpoint: WebhookEndpointJson): string[] {
  const { id, status, pending, dead_letters: deadLetters, url } = endpoint
  return [
    id,
    status,
    String(pending),
    String(deadLetters),
    localTime(endpoint.last_success_at),
    localTime(endpoint.last_failure_at),
    url,
  ]
}

export function endpointReport(endpoint: WebhookEndpointJson): string {
  const { id, status, disabled_reason: reason, consecutive_failures: failures } = endpoint
  return sheetText(`${id}  ${status}${reason === null ? '' : ` (${reason})`}`, [
    ['url', endpoint.url],
    ['events', endpoint.events.join(', ')],
    ['includes', endpoint.include.join(', ')],
    ['description', endpoint.description],
    ['added', localTime(endpoint.created_at)],
    ['changed', localTime(endpoint.updated_at)],
    ['last success', localTime(endpoint.last_success_at)],
    ['last failure', localTime(endpoint.last_failure_at)],
    ['failed in a row', failures === 0 ? null : String(failures)],
    ['pending', String(endpoint.pending)],
    ['dead letters', String(endpoint.dead_letters)],
  ])
}

export const DELIVERY_HEADS = ['CREATED', 'STATUS', 'EVENT', 'ATTEMPTS', 'NEXT', 'MESSAGE', 'ID']

export function deliveryRow(delivery: DeliveryView): string[] {
  const { id, status, event, attempts, next_attempt_at: nextAt, message_id: messageId } = delivery
  return [
    preciseTime(delivery.created_at),
    status,
    event,
    String(attempts),
    nextAt === null ? '' : preciseTime(nextAt),
    messageId ?? '',
    id,
  ]
}
