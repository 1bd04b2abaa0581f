/**
 * GET /health (http/README.md "Health, metrics, OpenAPI"): public; tells no address, name or version. For administrators: what the checks found last, and a run now (health/README.md "Checks").
 */
import * as wire from '../../api/health.ts'
import { secondsOrNull } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { canonicalIp } from '../../base/ip-address.ts'
import type { HealthResult } from '../../health/health-keeper.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import type { Administration } from '../exchange/operator-features.ts'
import { okData, success } from '../exchange/answer.ts'
import { routesOf, type Route } from '../exchange/route.ts'

const { get } = routesOf(null)
const admin = routesOf('admin')

export function healthRoutes({ health }: HttpFeatures): Route[] {
  return [
    get('/health', {
      summary: 'How the server is; 503 while requests had better go elsewhere.',
      ok: okData(wire.healthSchema),
      errors: ['unavailable'],
      async handler() {
        const report = await health()
        if (report.status !== 'unavailable') return success(report)
        throw new ServiceError('unavailable', report.db === 'ok' ? 'this node drains' : 'the store does not answer')
      },
    }),
  ]
}

export function checkRoutes(administration: Administration): Route[] {
  const ok = okData(wire.checksSchema)
  return [
    admin.get('/admin/checks', {
      summary: 'What the checks found when they last ran.',
      ok,
      handler: async () => success(checksAnswer(administration.lastChecks())),
    }),
    admin.post('/admin/checks', {
      summary: 'Runs the checks now.',
      body: wire.runChecksSchema,
      ok,
      async handler(_request, { checks, ip, domain }) {
        const asked = { checks, ip: ip === null ? null : knownIp(ip), domain: domain?.toLowerCase() ?? null }
        return success(checksAnswer(await administration.runChecks(asked)))
      },
    }),
  ]
}

function checksAnswer({ findings, ranAt, okAt }: HealthResult): wire.ChecksJson {
  return {
    ran_at: secondsOrNull(ranAt),
    checks: findings.map((finding) => ({ ...finding, last_ok_at: secondsOrNull(okAt[finding.check] ?? null) })),
  }
}

function knownIp(text: string): string {
  const ip = canonicalIp(text)
  if (ip === undefined) throw new ServiceError('invalid_request', `ip: "${text}" is not an IPv4 or IPv6 address`)
  return ip
}
