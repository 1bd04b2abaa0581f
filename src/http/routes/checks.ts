/**
 * The routes of the checks (health/README.md "Checks"): what they found last, and a run now. For administrators, as
 * those of `administration.ts`.
 */
import { toUnixSeconds } from '../../base/clock.ts'
import type { HealthResult } from '../../health/health-keeper.ts'
import type { Administration } from '../exchange/administration.ts'
import { runChecksSchema, toAskedChecks } from '../requests/checks.ts'
import { checksSchema } from '../responses/checks.ts'
import type { ChecksAnswer } from '../responses/checks.ts'
import { dataSchema, route, routeWithoutBody, success } from '../exchange/route.ts'
import type { Route } from '../exchange/route.ts'

const OK = 200

export function checkRoutes(administration: Administration): Route[] {
  const ok = { status: OK, schema: dataSchema(checksSchema) } as const
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/admin/checks',
      summary: 'What the checks found when they last ran.',
      scope: 'admin',
      body: null,
      ok,
      errors: [],
      handler: async () => success(OK, checksAnswer(administration.lastChecks())),
    }),
    route({
      method: 'POST',
      path: '/admin/checks',
      summary: 'Runs the checks now.',
      scope: 'admin',
      body: runChecksSchema,
      ok,
      errors: [],
      handler: async (_request, fields) =>
        success(OK, checksAnswer(await administration.runChecks(toAskedChecks(fields)))),
    }),
  ]
}

function checksAnswer({ findings, ranAt, okAt }: HealthResult): ChecksAnswer {
  return {
    ran_at: ranAt === null ? null : toUnixSeconds(ranAt),
    checks: findings.map((finding) => {
      const lastOk = okAt[finding.check]
      return { ...finding, last_ok_at: lastOk === undefined ? null : toUnixSeconds(lastOk) }
    }),
  }
}
