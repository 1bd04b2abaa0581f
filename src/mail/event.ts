/**
 * Events: facts about a message or a domain that are told to webhook endpoints, and the exact bytes they are told in.
 * The envelope and the fields of the five given kinds are the specification's (http/README.md "Events"): keys in this
 * order, no further fields, all values of `data` strings.
 */
import { toUnixSeconds } from '../base/clock.ts'
import type { Bounce } from './reply/delivery-outcome.ts'

/** The five kinds of the specification; the default subscription of an endpoint. */
export const GIVEN_EVENT_KINDS = [
  'email.delivered', // the email reached the recipient's mail server
  'email.bounced', // delivery failed for good
  'email.complained', // the recipient marked the email as spam
  'email.opened', // the recipient opened the email
  'email.clicked', // the recipient clicked a link
] as const

/** Further kinds, sent only to endpoints that name them or `*` (http/README.md "Events"). */
export const FURTHER_EVENT_KINDS = [
  'email.deferred',
  'email.suppressed',
  'email.unsubscribed',
  'email.canceled',
  'domain.verified',
  'domain.degraded',
  'ip.warmup.advanced',
  'ip.warmup.held',
  'ip.warmup.completed',
  'ip.blocklisted',
  'webhook.test',
] as const

/** Kinds of the timeline that are no webhook kinds. */
export const TIMELINE_KINDS = ['email.accepted', 'email.attempted', 'email.reported'] as const

export type WebhookEventKind = (typeof GIVEN_EVENT_KINDS)[number] | (typeof FURTHER_EVENT_KINDS)[number]
export type EventKind = WebhookEventKind | (typeof TIMELINE_KINDS)[number]

/** An event on its way into the store. `data` has its keys in the order they are sent in. */
export interface ServiceEvent {
  id: string
  kind: EventKind
  /** When it happened, Unix milliseconds. */
  at: number
  data: Record<string, string>
}

/** The body that is signed, stored once and posted unchanged on every retry. */
export function eventBody({ kind, at, data }: Omit<ServiceEvent, 'data'> & { data: object }): string {
  return JSON.stringify({ event: kind, timestamp: toUnixSeconds(at), data })
}

export function isSubscribed(events: readonly string[], kind: EventKind): boolean {
  if (TIMELINE_KINDS.some((timelineKind) => timelineKind === kind)) return false
  return events.includes('*') || events.includes(kind)
}

type EventData = Record<string, string>

/** `recipient` is the address as given in the request, without display name. */
export function deliveredData(messageId: string, recipient: string, isp: string): EventData {
  return { message_id: messageId, recipient, isp }
}

/** The same of a complaint. */
export const complainedData = deliveredData

export function canceledData(messageId: string, recipient: string): EventData {
  return { message_id: messageId, recipient }
}

/** The same of an open. */
export const openedData = canceledData

/** `list`: the one the recipient left, or `all`. */
export function unsubscribedData(messageId: string, recipient: string, list: string): EventData {
  return { message_id: messageId, recipient, list }
}

/** `reason`: why the address is on the list. */
export function suppressedData(messageId: string, recipient: string, reason: string): EventData {
  return { message_id: messageId, recipient, reason }
}

/** `url` is the target as the mail was sent with it, after substitution. */
export function clickedData(messageId: string, recipient: string, url: string): EventData {
  return { message_id: messageId, recipient, url }
}

/** `nextAttemptAt` in Unix milliseconds; told in seconds. */
export function deferredData(
  messageId: string,
  recipient: string,
  { isp, description, nextAttemptAt }: { isp: string; description: string; nextAttemptAt: number },
): EventData {
  return { message_id: messageId, recipient, isp, description, next_attempt_at: String(toUnixSeconds(nextAttemptAt)) }
}

export function bouncedData(messageId: string, recipient: string, bounce: Bounce): EventData {
  const { type: bounce_type, code: bounce_code, description: bounce_description } = bounce
  return { message_id: messageId, recipient, bounce_type, bounce_code, bounce_description }
}
