/**
 * GET /health (contract.md 15): public; tells no address, name or version. 503 when no mail is accepted.
 */
import { ServiceError } from '../../base/errors.ts'
import type { HttpFeatures } from '../features.ts'
import { routeWithoutBody, success } from '../route.ts'
import type { Route } from '../route.ts'

export function healthRoutes({ health }: HttpFeatures): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/health',
      scope: null,
      body: null,
      errors: ['unavailable'],
      async handler() {
        const report = await health()
        if (report.status === 'unavailable') throw new ServiceError('unavailable', 'no mail is accepted now')
        return success(200, report)
      },
    }),
  ]
}
