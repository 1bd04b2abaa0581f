/**
 * POST /webhooks (contract.md 8.1). A given secret is never echoed; a generated one is in the answer this one time.
 */
import type { HttpFeatures } from '../features.ts'
import { registerEndpointSchema, toRegisterEndpointRequest } from '../requests/webhook.ts'
import { route, success } from '../route.ts'
import type { Route } from '../route.ts'

const CREATED = 201

export function webhookRoutes({ webhookEndpoints }: HttpFeatures): Route[] {
  return [
    route({
      method: 'POST',
      path: '/webhooks',
      scope: 'webhooks',
      body: registerEndpointSchema,
      errors: ['conflict'],
      async handler(request, fields) {
        const { endpoint, secret, warnings } = await webhookEndpoints.register(toRegisterEndpointRequest(fields))
        for (const warning of warnings) request.warn(warning)
        return success(CREATED, secret === null ? endpoint : { ...endpoint, secret })
      },
    }),
  ]
}
