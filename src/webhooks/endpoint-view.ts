/**
 * A webhook endpoint as it is shown (http/README.md "Webhooks"); times in Unix seconds. Never with a secret. Pure.
 */
import { toUnixSeconds } from '../base/clock.ts'
import type { DisabledReason, WebhookEndpointState } from '../store/records/webhook-records.ts'

export interface WebhookEndpointView {
  id: string
  url: string
  events: string[]
  include: string[]
  description: string | null
  status: 'enabled' | 'disabled'
  disabled_reason: DisabledReason | null
  secret_set: true
  created_at: number
  updated_at: number
  last_success_at: number | null
  last_failure_at: number | null
  consecutive_failures: number
  pending: number
  dead_letters: number
}

export function endpointView(state: WebhookEndpointState): WebhookEndpointView {
  return {
    id: state.id,
    url: state.url,
    events: state.events,
    include: state.include,
    description: state.description,
    status: state.status,
    disabled_reason: state.disabledReason,
    secret_set: true,
    created_at: toUnixSeconds(state.createdAt),
    updated_at: toUnixSeconds(state.updatedAt),
    last_success_at: secondsOrNull(state.lastSuccessAt),
    last_failure_at: secondsOrNull(state.lastFailureAt),
    consecutive_failures: state.consecutiveFailures,
    pending: state.pending,
    dead_letters: state.deadLetters,
  }
}

export function secondsOrNull(milliseconds: number | null): number | null {
  return milliseconds === null ? null : toUnixSeconds(milliseconds)
}
