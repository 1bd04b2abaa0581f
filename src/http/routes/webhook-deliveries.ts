/**
 * The routes of webhook deliveries, and the stream of events (http/README.md "Webhooks", commands/README.md "sternpost
 * listen").
 */
import { z } from 'zod'
import type { HttpFeatures } from '../exchange/features.ts'
import { DEFAULT_LIMIT } from '../requests/list.ts'
import { listDeliveriesSchema, replayRangeSchema, streamSchema, toReplayRangeRequest } from '../requests/webhook.ts'
import { replayedSchema, webhookDeliveryDetailSchema, webhookDeliverySchema } from '../responses/webhook.ts'
import {
  dataSchema,
  listSchema,
  route,
  routeWithoutBody,
  routeWithQuery,
  success,
  successList,
} from '../exchange/route.ts'
import type { ApiRequest, Route } from '../exchange/route.ts'

const OK = 200
const ACCEPTED = 202

export function webhookDeliveryRoutes(features: HttpFeatures): Route[] {
  return [...lookupRoutes(features), ...replayRoutes(features), streamRoute(features)]
}

const idOf = ({ params }: ApiRequest): string => params['id'] ?? ''
const deliveryOf = ({ params }: ApiRequest): string => params['whd'] ?? ''

function lookupRoutes({ webhookDeliveries }: HttpFeatures): Route[] {
  return [
    routeWithQuery({
      method: 'GET',
      path: '/webhooks/:id/deliveries',
      summary: 'Lists what was sent to an endpoint or waits for it, newest first.',
      scope: 'webhooks',
      query: listDeliveriesSchema,
      ok: { status: OK, schema: listSchema(webhookDeliverySchema) },
      errors: ['not_found'],
      async handler(request, { status, event, message_id: messageId, limit, after }) {
        const { deliveries, next } = await webhookDeliveries.list({
          endpointId: idOf(request),
          state: status ?? null,
          kind: event ?? null,
          messageId: messageId ?? null,
          limit: limit ?? DEFAULT_LIMIT,
          after: after ?? null,
        })
        return successList(deliveries, next)
      },
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/webhooks/:id/deliveries/:whd',
      summary: 'One delivery, with its exact body and every attempt.',
      scope: 'webhooks',
      body: null,
      ok: { status: OK, schema: dataSchema(webhookDeliveryDetailSchema) },
      errors: ['not_found'],
      handler: async (request) => success(OK, await webhookDeliveries.find(idOf(request), deliveryOf(request))),
    }),
  ]
}

function replayRoutes({ webhookDeliveries }: HttpFeatures): Route[] {
  return [
    route({
      method: 'POST',
      path: '/webhooks/:id/deliveries/:whd/replay',
      summary: 'Makes a new delivery of the same event and bytes.',
      scope: 'webhooks',
      body: z.object({}),
      ok: { status: ACCEPTED, schema: dataSchema(webhookDeliverySchema) },
      errors: ['not_found', 'conflict'],
      handler: async (request) => success(ACCEPTED, await webhookDeliveries.replay(idOf(request), deliveryOf(request))),
    }),
    route({
      method: 'POST',
      path: '/webhooks/:id/replay',
      summary: 'Sends ended deliveries again, the oldest event first, behind live events.',
      scope: 'webhooks',
      body: replayRangeSchema,
      ok: { status: ACCEPTED, schema: dataSchema(replayedSchema) },
      errors: ['not_found', 'conflict'],
      handler: async (request, fields) =>
        success(ACCEPTED, { queued: await webhookDeliveries.replayRange(idOf(request), toReplayRangeRequest(fields)) }),
    }),
  ]
}

/** It ends when its key is revoked or expires. */
function streamRoute({ eventStreams, apiKeys }: HttpFeatures): Route {
  return routeWithQuery({
    method: 'GET',
    path: '/webhooks/stream',
    summary: 'Events as they happen, as server-sent events; goes on behind Last-Event-ID.',
    scope: 'webhooks',
    query: streamSchema,
    ok: { status: OK, schema: z.string(), contentType: 'text/event-stream' },
    errors: [],
    async handler(request, { events }) {
      const { principal, headers } = request
      const lastEventId = headers['last-event-id']
      const stream = await eventStreams.open({
        events: events?.split(',') ?? null,
        lastEventId: typeof lastEventId === 'string' && lastEventId !== '' ? lastEventId : null,
        isAllowed: async () => principal.apiKeyId === null || apiKeys.isValid(principal.apiKeyId),
      })
      request.setHeader('Content-Type', 'text/event-stream; charset=utf-8')
      // A proxy must not wait for more.
      request.setHeader('X-Accel-Buffering', 'no')
      return { status: OK, body: '', stream }
    },
  })
}
