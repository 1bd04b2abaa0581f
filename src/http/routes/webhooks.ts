/**
 * The routes of webhook endpoints, of their deliveries, and the stream of events (http/README.md "Webhooks"). A given
 * secret is never echoed; a generated one stands in the answer this one time.
 */
import { z } from 'zod'
import { noFieldsSchema } from '../../api/fields.ts'
import { withoutNulls } from '../../api/names.ts'
import * as wire from '../../api/webhook.ts'
import { SECOND } from '../../base/clock.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import {
  ACCEPTED,
  CREATED,
  OK,
  okData,
  okList,
  param,
  routesOf,
  success,
  successList,
  type ApiRequest,
  type Note,
  type Route,
} from '../exchange/route.ts'

const { get, post, patch, remove } = routesOf('webhooks')

const OK_ENDPOINT = okData(wire.webhookEndpointSchema)

export function webhookRoutes(features: HttpFeatures, note: Note): Route[] {
  return [
    ...endpointRoutes(features, note),
    ...secretRoutes(features, note),
    ...deliveryRoutes(features),
    streamRoute(features),
  ]
}

const idOf = (request: ApiRequest): string => param(request, 'id')

function endpointRoutes({ webhookEndpoints }: HttpFeatures, note: Note): Route[] {
  return [
    post('/webhooks', {
      summary: 'Registers an endpoint that receives events.',
      body: wire.registerEndpointSchema,
      ok: okData(wire.createdWebhookSchema, CREATED),
      errors: ['conflict'],
      idempotency: 'after-answer',
      async handler(request, fields) {
        const { endpoint, secret, warnings } = await webhookEndpoints.register({
          ...fields,
          include: fields.include ?? [],
        })
        for (const warning of warnings) request.warn(warning)
        note('webhook endpoint registered', request, { endpoint_id: endpoint.id })
        return success(secret === null ? endpoint : { ...endpoint, secret }, CREATED)
      },
    }),
    get('/webhooks', {
      summary: 'Lists the endpoints, newest first.',
      query: wire.listEndpointsSchema,
      ok: okList(wire.webhookEndpointSchema),
      async handler(_request, { limit, after }) {
        const { endpoints, next } = await webhookEndpoints.list(limit, after)
        return successList(endpoints, next)
      },
    }),
    get('/webhooks/:id', {
      summary: 'One endpoint, without its secret.',
      ok: OK_ENDPOINT,
      errors: ['not_found'],
      handler: async (request) => success(await webhookEndpoints.find(idOf(request))),
    }),
    patch('/webhooks/:id', {
      summary: 'Changes an endpoint; enabling it resets its counters.',
      body: wire.changeEndpointSchema,
      ok: OK_ENDPOINT,
      errors: ['not_found'],
      async handler(request, fields) {
        const endpoint = await webhookEndpoints.update(idOf(request), withoutNulls(fields))
        note('webhook endpoint changed', request, { endpoint_id: endpoint.id })
        return success(endpoint)
      },
    }),
    remove('/webhooks/:id', {
      summary: 'Removes an endpoint; what waits for it is dropped.',
      ok: okData(wire.removedWebhookSchema),
      errors: ['not_found'],
      async handler(request) {
        const id = idOf(request)
        await webhookEndpoints.remove(id)
        note('webhook endpoint removed', request, { endpoint_id: id })
        return success({ id, deleted: true })
      },
    }),
  ]
}

/** What is done with the secret of an endpoint: signing one sample, and changing it. */
function secretRoutes({ webhookEndpoints, tryWebhook }: HttpFeatures, note: Note): Route[] {
  return [
    post('/webhooks/:id/test', {
      summary: 'Sends one sample event now, signed with the real secret, and does not retry it.',
      body: wire.tryEndpointSchema,
      ok: okData(wire.webhookTrialSchema),
      errors: ['not_found'],
      handler: async (request, { event }) => success(await tryWebhook(idOf(request), event)),
    }),
    post('/webhooks/:id/rotate-secret', {
      summary: 'Gives an endpoint a new secret; the old one signs for a while.',
      body: wire.rotateSecretSchema,
      ok: okData(wire.rotatedSecretSchema),
      errors: ['not_found', 'conflict'],
      async handler(request, { secret: given, graceSeconds }) {
        const id = idOf(request)
        const { secret, switchAt, warnings } = await webhookEndpoints.rotateSecret(id, { secret: given, graceSeconds })
        for (const warning of warnings) request.warn(warning)
        note('webhook secret rotated', request, { endpoint_id: id })
        const rotated = { id, switch_at: switchAt / SECOND }
        return success(secret === null ? rotated : { ...rotated, secret })
      },
    }),
  ]
}

function deliveryRoutes({ webhookDeliveries }: HttpFeatures): Route[] {
  return [
    get('/webhooks/:id/deliveries', {
      summary: 'Lists what was sent to an endpoint or waits for it, newest first.',
      query: wire.listDeliveriesSchema,
      ok: okList(wire.webhookDeliverySchema),
      errors: ['not_found'],
      async handler(request, { status: state, event: kind, ...rest }) {
        const { deliveries, next } = await webhookDeliveries.list({ endpointId: idOf(request), state, kind, ...rest })
        return successList(deliveries, next)
      },
    }),
    get('/webhooks/:id/deliveries/:whd', {
      summary: 'One delivery, with its exact body and every attempt.',
      ok: okData(wire.webhookDeliveryDetailSchema),
      errors: ['not_found'],
      handler: async (request) => success(await webhookDeliveries.find(idOf(request), param(request, 'whd'))),
    }),
    post('/webhooks/:id/deliveries/:whd/replay', {
      summary: 'Makes a new delivery of the same event and bytes.',
      body: noFieldsSchema,
      ok: okData(wire.webhookDeliverySchema, ACCEPTED),
      errors: ['not_found', 'conflict'],
      handler: async (request) =>
        success(await webhookDeliveries.replay(idOf(request), param(request, 'whd')), ACCEPTED),
    }),
    post('/webhooks/:id/replay', {
      summary: 'Sends ended deliveries again, the oldest event first, behind live events.',
      body: wire.replayRangeSchema,
      ok: okData(wire.replayedSchema, ACCEPTED),
      errors: ['not_found', 'conflict'],
      handler: async (request, fields) =>
        success({ queued: await webhookDeliveries.replayRange(idOf(request), fields) }, ACCEPTED),
    }),
  ]
}

/** It ends when its key is revoked or expires. */
function streamRoute({ eventStreams, apiKeys }: HttpFeatures): Route {
  return get('/webhooks/stream', {
    summary: 'Events as they happen, as server-sent events; goes on behind Last-Event-ID.',
    query: wire.streamSchema,
    ok: { status: OK, schema: z.string(), contentType: 'text/event-stream' },
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
