/**
 * GET /health (http/README.md "Health, metrics, OpenAPI"): public; tells no address, name or version. 503 when no mail
 * is accepted.
 */
import { ServiceError } from '../../base/errors.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { healthSchema } from '../responses/health.ts'
import { dataSchema, routeWithoutBody, success } from '../exchange/route.ts'
import type { Route } from '../exchange/route.ts'

export function healthRoutes({ health }: HttpFeatures): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/health',
      summary: 'Whether the server takes mail.',
      scope: null,
      body: null,
      ok: { status: 200, schema: dataSchema(healthSchema) },
      errors: ['unavailable'],
      async handler() {
        const report = await health()
        if (report.status === 'unavailable') throw new ServiceError('unavailable', 'no mail is accepted now')
        return success(200, report)
      },
    }),
  ]
}
