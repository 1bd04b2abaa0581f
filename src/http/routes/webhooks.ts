/**
 * The routes of webhook endpoints, of their deliveries, and the stream of events (http/README.md "Webhooks"). A given
 * secret is never echoed; a generated one stands in the answer this one time.
 */
import { z } from 'zod'
import { withoutNulls, type CamelFields } from '../../api/names.ts'
import * as wire from '../../api/webhook.ts'
import { SECOND } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { includesReach, type Reach } from '../../mail/reach.ts'
import { readDomainName } from '../../senders/domain-name.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { ACCEPTED, CREATED, OK, okData, okList, success, successList } from '../exchange/answer.ts'
import { param, routesOf, type ApiRequest, type Note, type Route } from '../exchange/route.ts'
import { warnOfUnknownDomains } from './domains.ts'

const { get, post, patch, remove } = routesOf('webhooks')

const OK_ENDPOINT = okData(wire.webhookEndpointSchema)

export function webhookRoutes(features: HttpFeatures, note: Note): Route[] {
  return [
    ...endpointRoutes(features, note),
    ...secretRoutes(features, note),
    ...deliveryRoutes(features, note),
    streamRoute(features),
  ]
}

/** ServiceError `not_found` for an endpoint beyond the reach of the key, in all routes of one endpoint. */
async function idOf(
  request: ApiRequest,
  { webhookEndpoints }: Pick<HttpFeatures, 'webhookEndpoints'>,
): Promise<string> {
  return (await webhookEndpoints.find(param(request, 'id'), request.principal.reach)).id
}

type EndpointFields = CamelFields<z.infer<typeof wire.registerEndpointSchema>>

/** A key registers endpoints for what it reaches itself; `mode` is for the administrator, who has none. */
function reachOfNew({ mode, domains }: Pick<EndpointFields, 'mode' | 'domains'>, { principal }: ApiRequest): Reach {
  const own = principal.reach
  const isTest = mode === null ? principal.mode === 'test' : mode === 'test'
  if (own.isTest !== null && own.isTest !== isTest) {
    throw new ServiceError('forbidden', `mode: a ${principal.mode} key has ${principal.mode} endpoints only`)
  }
  return { isTest, domains: domains === null ? own.domains : readDomains(domains, own) }
}

/** In the form they are stored in. ServiceError: `invalid_request`, or `forbidden` for one that the key is not for. */
function readDomains(given: readonly string[], own: Reach): string[] {
  const readings = given.map(readDomainName)
  const problems = readings.flatMap((reading, index) => (reading.ok ? [] : [`domains[${index}]: ${reading.problem}`]))
  if (problems.length > 0) throw new ServiceError('invalid_request', problems.join('; '))
  const domains = [...new Set(readings.flatMap((reading) => (reading.ok ? [reading.name] : [])))]
  if (includesReach({ ...own, isTest: null }, { isTest: null, domains })) return domains
  throw new ServiceError('forbidden', `domains: this key is only for ${own.domains.join(', ')}`)
}

function endpointRoutes({ webhookEndpoints, domains: sending }: HttpFeatures, note: Note): Route[] {
  const features = { webhookEndpoints }
  return [
    post('/webhooks', {
      summary: 'Registers an endpoint that receives events.',
      body: wire.registerEndpointSchema,
      ok: okData(wire.createdWebhookSchema, CREATED),
      errors: ['conflict'],
      idempotency: 'after-answer',
      async handler(request, { mode, domains, include, ...fields }) {
        const reach = reachOfNew({ mode, domains }, request)
        const asked = { ...fields, include: include ?? [], reach }
        const { endpoint, secret, warnings } = await webhookEndpoints.register(asked)
        await warnOfUnknownDomains({ domains: sending }, request, endpoint.domains)
        for (const warning of warnings) request.warn(warning)
        note('webhook endpoint registered', request, { endpoint_id: endpoint.id })
        return success(secret === null ? endpoint : { ...endpoint, secret }, CREATED)
      },
    }),
    get('/webhooks', {
      summary: 'Lists the endpoints, newest first.',
      query: wire.listEndpointsSchema,
      ok: okList(wire.webhookEndpointSchema),
      async handler({ principal }, { limit, after }) {
        const { endpoints, next } = await webhookEndpoints.list(principal.reach, limit, after)
        return successList(endpoints, next)
      },
    }),
    get('/webhooks/:id', {
      summary: 'One endpoint, without its secret.',
      ok: OK_ENDPOINT,
      handler: async (request) => success(await webhookEndpoints.find(param(request, 'id'), request.principal.reach)),
    }),
    patch('/webhooks/:id', {
      summary: 'Changes an endpoint; enabling it resets its counters.',
      body: wire.changeEndpointSchema,
      ok: OK_ENDPOINT,
      async handler(request, { domains: given, ...fields }) {
        const domains = given === null ? null : readDomains(given, request.principal.reach)
        const change = withoutNulls({ ...fields, domains })
        const endpoint = await webhookEndpoints.update(await idOf(request, features), change)
        if (domains !== null) await warnOfUnknownDomains({ domains: sending }, request, domains)
        note('webhook endpoint changed', request, { endpoint_id: endpoint.id })
        return success(endpoint)
      },
    }),
    remove('/webhooks/:id', {
      summary: 'Removes an endpoint; what waits for it is dropped.',
      ok: okData(wire.removedWebhookSchema),
      async handler(request) {
        const id = await idOf(request, features)
        await webhookEndpoints.remove(id)
        note('webhook endpoint removed', request, { endpoint_id: id })
        return success({ id, deleted: true })
      },
    }),
  ]
}

/** What is done with the secret of an endpoint: signing one sample, and changing it. */
function secretRoutes(features: HttpFeatures, note: Note): Route[] {
  const { webhookEndpoints, tryWebhook } = features
  return [
    post('/webhooks/:id/test', {
      summary: 'Sends one sample event now, signed with the real secret, and does not retry it.',
      body: wire.tryEndpointSchema,
      ok: okData(wire.webhookTrialSchema),
      handler: async (request, { event }) => success(await tryWebhook(await idOf(request, features), event)),
    }),
    post('/webhooks/:id/rotate-secret', {
      summary: 'Gives an endpoint a new secret; the old one signs for a while.',
      body: wire.rotateSecretSchema,
      ok: okData(wire.rotatedSecretSchema),
      errors: ['conflict'],
      async handler(request, { secret: given, graceSeconds }) {
        const id = await idOf(request, features)
        const { secret, switchAt, warnings } = await webhookEndpoints.rotateSecret(id, { secret: given, graceSeconds })
        for (const warning of warnings) request.warn(warning)
        note('webhook secret rotated', request, { endpoint_id: id })
        const rotated = { id, switch_at: switchAt / SECOND }
        return success(secret === null ? rotated : { ...rotated, secret })
      },
    }),
  ]
}

function deliveryRoutes(features: HttpFeatures, note: Note): Route[] {
  const { webhookDeliveries } = features
  return [
    get('/webhooks/:id/deliveries', {
      summary: 'Lists what was sent to an endpoint or waits for it, newest first.',
      query: wire.listDeliveriesSchema,
      ok: okList(wire.webhookDeliverySchema),
      async handler(request, { status: state, event: kind, ...rest }) {
        const endpointId = await idOf(request, features)
        const { deliveries, next } = await webhookDeliveries.list({ endpointId, state, kind, ...rest })
        return successList(deliveries, next)
      },
    }),
    get('/webhooks/:id/deliveries/:whd', {
      summary: 'One delivery, with its exact body and every attempt.',
      ok: okData(wire.webhookDeliveryDetailSchema),
      handler: async (request) =>
        success(await webhookDeliveries.find(await idOf(request, features), param(request, 'whd'))),
    }),
    post('/webhooks/:id/deliveries/:whd/replay', {
      summary: 'Makes a new delivery of the same event and bytes.',
      ok: okData(wire.webhookDeliverySchema, ACCEPTED),
      errors: ['conflict'],
      async handler(request) {
        const [id, whd] = [await idOf(request, features), param(request, 'whd')]
        const made = await webhookDeliveries.replay(id, whd)
        note('webhook delivery replayed', request, { endpoint_id: id, delivery_id: whd })
        return success(made, ACCEPTED)
      },
    }),
    post('/webhooks/:id/replay', {
      summary: 'Sends ended deliveries again, the oldest event first, behind live events.',
      body: wire.replayRangeSchema,
      ok: okData(wire.replayedSchema, ACCEPTED),
      errors: ['conflict'],
      async handler(request, fields) {
        const id = await idOf(request, features)
        const queued = await webhookDeliveries.replayRange(id, fields)
        note('webhook deliveries replayed', request, { endpoint_id: id, deliveries: queued })
        return success({ queued }, ACCEPTED)
      },
    }),
  ]
}

/** It ends when its key is revoked, expires, or is for other sending domains than before. */
function streamRoute({ eventStreams, apiKeys }: HttpFeatures): Route {
  return get('/webhooks/stream', {
    summary: 'Events as they happen, as server-sent events; goes on behind Last-Event-ID.',
    query: wire.streamSchema,
    ok: { status: OK, schema: z.string(), contentType: 'text/event-stream' },
    async handler(request, { events, messageId }) {
      const { principal, headers } = request
      const lastEventId = headers['last-event-id']
      const stream = await eventStreams.open({
        events: events?.split(',') ?? null,
        messageId,
        lastEventId: typeof lastEventId === 'string' && lastEventId !== '' ? lastEventId : null,
        reach: principal.reach,
        apiKeyId: principal.apiKeyId,
        isAllowed: async () =>
          (await (principal.isAlive?.() ?? true)) &&
          (principal.apiKeyId === null || apiKeys.isValid(principal.apiKeyId, principal.reach.domains)),
      })
      request.setHeader('Content-Type', 'text/event-stream; charset=utf-8')
      // A proxy must not wait for more.
      request.setHeader('X-Accel-Buffering', 'no')
      return { status: OK, body: '', stream }
    },
  })
}
