/**
 * The JSON and the query parameters of the webhook routes (http/README.md "Webhooks"). The rules about the values are
 * those of `webhooks`.
 */
import { z } from 'zod'
import type { ReplayRangeRequest } from '../../webhooks/deliveries.ts'
import type { ChangeEndpointRequest, RegisterEndpointRequest } from '../../webhooks/endpoints.ts'
import { listParameters } from './list.ts'
import { optionalText, textList } from './optional.ts'

/** Above the number of event kinds: repeats and unknown kinds are then named one by one. */
const MOST_EVENTS = 50

const eventList = () => textList(MOST_EVENTS).nullish()

export const registerEndpointSchema = z.object({
  url: z.string(),
  events: eventList(),
  secret: optionalText(),
  include: eventList(),
  description: optionalText(),
})

export const changeEndpointSchema = z.object({
  url: optionalText(),
  events: eventList(),
  include: eventList(),
  description: optionalText(),
  status: z.enum(['enabled', 'disabled']).nullish(),
})

export const tryEndpointSchema = z.object({ event: optionalText() })

export const rotateSecretSchema = z.object({ secret: optionalText(), grace_seconds: z.int().nullish() })

/** Unix seconds. */
const time = () => z.int().min(0).max(1e12).nullish()

export const replayRangeSchema = z.object({
  since: time(),
  until: time(),
  status: z.enum(['failed', 'skipped', 'all']).nullish(),
  events: eventList(),
})

export const listEndpointsSchema = z.object(listParameters())

export const listDeliveriesSchema = z.object({
  status: z.enum(['pending', 'succeeded', 'failed', 'skipped']).nullish(),
  event: optionalText(),
  message_id: optionalText(),
  ...listParameters(),
})

/** Kinds with commas between them. */
export const streamSchema = z.object({ events: optionalText() })

export function toRegisterEndpointRequest(fields: z.infer<typeof registerEndpointSchema>): RegisterEndpointRequest {
  const { url, events, secret, include, description } = fields
  return {
    url,
    events: events ?? null,
    include: include ?? [],
    secret: secret ?? null,
    description: description ?? null,
  }
}

/** What is absent or null stays as it is. */
export function toEndpointChange(fields: z.infer<typeof changeEndpointSchema>): ChangeEndpointRequest {
  const { url, events, include, description, status } = fields
  const change: ChangeEndpointRequest = {}
  if (typeof url === 'string') change.url = url
  if (Array.isArray(events)) change.events = events
  if (Array.isArray(include)) change.include = include
  if (typeof description === 'string') change.description = description
  if (status === 'enabled' || status === 'disabled') change.status = status
  return change
}

export function toReplayRangeRequest(fields: z.infer<typeof replayRangeSchema>): ReplayRangeRequest {
  const { since, until, status, events } = fields
  return { since: since ?? null, until: until ?? null, status: status ?? null, events: events ?? null }
}
