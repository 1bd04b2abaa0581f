/**
 * The server itself: which version runs since when, and how much it logs, for a while. For administrators alone, like
 * the other routes of `administration.ts`.
 */
import { z } from 'zod'
import { MINUTE, SECOND, toUnixSeconds } from '../../base/clock.ts'
import type { Administration } from '../exchange/administration.ts'
import { dataSchema, route, routeWithoutBody, success } from '../exchange/route.ts'
import type { Route } from '../exchange/route.ts'

const OK = 200
/** Debug lines of a busy server fill a journal: a day is the longest anybody looks on. */
const LONGEST_SECONDS = 86_400
const DEFAULT_SECONDS = (10 * MINUTE) / SECOND

const LEVELS = ['debug', 'info', 'warn', 'error'] as const

export function serverStateRoutes(administration: Pick<Administration, 'raiseLogLevel' | 'server'>): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/admin/server',
      summary: 'Which version runs, and since when.',
      scope: 'admin',
      body: null,
      ok: {
        status: OK,
        schema: dataSchema(
          z.object({ version: z.string(), node: z.string(), started_at: z.int(), revision: z.int().min(1) }),
        ),
      },
      errors: [],
      async handler() {
        const { version, node, startedAt, revision } = administration.server()
        return success(OK, { version, node, started_at: toUnixSeconds(startedAt), revision })
      },
    }),
    route({
      method: 'POST',
      path: '/admin/log-level',
      summary: 'Logs at another level for a while.',
      scope: 'admin',
      body: z.object({ level: z.enum(LEVELS), for_seconds: z.int().min(1).max(LONGEST_SECONDS).nullish() }),
      ok: { status: OK, schema: dataSchema(z.object({ level: z.enum(LEVELS), until: z.int() })) },
      errors: [],
      async handler(_request, { level, for_seconds: seconds }) {
        const raised = administration.raiseLogLevel(level, (seconds ?? DEFAULT_SECONDS) * SECOND)
        return success(OK, { level: raised.level, until: toUnixSeconds(raised.until) })
      },
    }),
  ]
}
