/**
 * POST /webhooks: the JSON it takes (contract.md 8.1). The rules about the values are those of `webhooks`.
 */
import { z } from 'zod'
import type { RegisterEndpointRequest } from '../../webhooks/register-endpoint.ts'
import { optionalText, textList } from './optional.ts'

/** Above the number of event kinds: repeats and unknown kinds are then named one by one. */
const MOST_EVENTS = 50

export const registerEndpointSchema = z.object({
  url: z.string(),
  events: textList(MOST_EVENTS).nullish(),
  secret: optionalText(),
  description: optionalText(),
})

export function toRegisterEndpointRequest(fields: z.infer<typeof registerEndpointSchema>): RegisterEndpointRequest {
  const { url, events = null, secret = null, description = null } = fields
  return { url, events, secret, description }
}
