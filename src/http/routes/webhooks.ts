/**
 * The routes of webhook endpoints (http/README.md "Webhooks"). A given secret is never echoed; a generated one is in
 * the answer this one time. Every change leaves a log line that says who asked for it.
 */
import { SECOND } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { DEFAULT_LIMIT } from '../requests/list.ts'
import {
  changeEndpointSchema,
  listEndpointsSchema,
  registerEndpointSchema,
  rotateSecretSchema,
  toEndpointChange,
  toRegisterEndpointRequest,
  tryEndpointSchema,
} from '../requests/webhook.ts'
import {
  createdWebhookSchema,
  removedWebhookSchema,
  rotatedSecretSchema,
  webhookEndpointSchema,
  webhookTrialSchema,
} from '../responses/webhook.ts'
import {
  dataSchema,
  listSchema,
  route,
  routeWithoutBody,
  routeWithQuery,
  success,
  successList,
} from '../exchange/route.ts'
import type { ApiRequest, OkAnswer, Route } from '../exchange/route.ts'
import { webhookDeliveryRoutes } from './webhook-deliveries.ts'

const CREATED = 201
const OK = 200
const OK_ENDPOINT: OkAnswer = { status: OK, schema: dataSchema(webhookEndpointSchema) }

export function webhookRoutes(features: HttpFeatures, logger: Logger): Route[] {
  const note: Note = (what, id, { requestId, principal }) =>
    logger.info({ endpoint_id: id, request_id: requestId, api_key: principal.label }, what)
  return [
    ...collectionRoutes(features, note),
    ...endpointRoutes(features, note),
    ...secretRoutes(features, note),
    ...webhookDeliveryRoutes(features),
  ]
}

/** Writes who did what to which endpoint. */
type Note = (what: string, id: string, request: ApiRequest) => void

const idOf = ({ params }: ApiRequest): string => params['id'] ?? ''

/** /webhooks */
function collectionRoutes({ webhookEndpoints }: HttpFeatures, note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/webhooks',
      summary: 'Registers an endpoint that receives events.',
      scope: 'webhooks',
      body: registerEndpointSchema,
      ok: { status: CREATED, schema: dataSchema(createdWebhookSchema) },
      errors: ['conflict'],
      idempotency: 'after-answer',
      async handler(request, fields) {
        const { endpoint, secret, warnings } = await webhookEndpoints.register(toRegisterEndpointRequest(fields))
        for (const warning of warnings) request.warn(warning)
        note('webhook endpoint registered', endpoint.id, request)
        return success(CREATED, secret === null ? endpoint : { ...endpoint, secret })
      },
    }),
    routeWithQuery({
      method: 'GET',
      path: '/webhooks',
      summary: 'Lists the endpoints, newest first.',
      scope: 'webhooks',
      query: listEndpointsSchema,
      ok: { status: OK, schema: listSchema(webhookEndpointSchema) },
      errors: [],
      async handler(_request, { limit, after }) {
        const { endpoints, next } = await webhookEndpoints.list(limit ?? DEFAULT_LIMIT, after ?? null)
        return successList(endpoints, next)
      },
    }),
  ]
}

/** /webhooks/{id} */
function endpointRoutes({ webhookEndpoints }: HttpFeatures, note: Note): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/webhooks/:id',
      summary: 'One endpoint, without its secret.',
      scope: 'webhooks',
      body: null,
      ok: OK_ENDPOINT,
      errors: ['not_found'],
      handler: async (request) => success(OK, await webhookEndpoints.find(idOf(request))),
    }),
    route({
      method: 'PATCH',
      path: '/webhooks/:id',
      summary: 'Changes an endpoint; enabling it resets its counters.',
      scope: 'webhooks',
      body: changeEndpointSchema,
      ok: OK_ENDPOINT,
      errors: ['not_found'],
      async handler(request, fields) {
        const endpoint = await webhookEndpoints.update(idOf(request), toEndpointChange(fields))
        note('webhook endpoint changed', endpoint.id, request)
        return success(OK, endpoint)
      },
    }),
    routeWithoutBody({
      method: 'DELETE',
      path: '/webhooks/:id',
      summary: 'Removes an endpoint; what waits for it is dropped.',
      scope: 'webhooks',
      body: null,
      ok: { status: OK, schema: dataSchema(removedWebhookSchema) },
      errors: ['not_found'],
      async handler(request) {
        const id = idOf(request)
        await webhookEndpoints.remove(id)
        note('webhook endpoint removed', id, request)
        return success(OK, { id, deleted: true })
      },
    }),
  ]
}

/** What is done with the secret of an endpoint: signing one sample, and changing it. */
function secretRoutes({ webhookEndpoints, tryWebhook }: HttpFeatures, note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/webhooks/:id/test',
      summary: 'Sends one sample event now, signed with the real secret, and does not retry it.',
      scope: 'webhooks',
      body: tryEndpointSchema,
      ok: { status: OK, schema: dataSchema(webhookTrialSchema) },
      errors: ['not_found'],
      handler: async (request, { event }) => success(OK, await tryWebhook(idOf(request), event ?? null)),
    }),
    route({
      method: 'POST',
      path: '/webhooks/:id/rotate-secret',
      summary: 'Gives an endpoint a new secret; the old one signs for a while.',
      scope: 'webhooks',
      body: rotateSecretSchema,
      ok: { status: OK, schema: dataSchema(rotatedSecretSchema) },
      errors: ['not_found', 'conflict'],
      async handler(request, { secret: given, grace_seconds: grace }) {
        const id = idOf(request)
        const { secret, switchAt, warnings } = await webhookEndpoints.rotateSecret(id, {
          secret: given ?? null,
          graceSeconds: grace ?? null,
        })
        for (const warning of warnings) request.warn(warning)
        note('webhook secret rotated', id, request)
        const rotated = { id, switch_at: switchAt / SECOND }
        return success(OK, secret === null ? rotated : { ...rotated, secret })
      },
    }),
  ]
}
