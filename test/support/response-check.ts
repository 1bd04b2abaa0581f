/**
 * Holds an answer of the API against what its route promises: the schema of the OpenAPI document for a success, with no
 * field that the schema does not name, and the envelope for an error. Throws when it does not fit.
 */
import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import { createLogger } from '../../src/base/logger.ts'
import type { HttpFeatures } from '../../src/http/exchange/features.ts'
import { errorSchema } from '../../src/api/envelope.ts'
import type { Route } from '../../src/http/exchange/route.ts'
import { createRouteTable } from '../../src/http/exchange/route-table.ts'
import { apiRoutes } from '../../src/http/routes/routes.ts'

export interface SeenResponse {
  method: string
  /** With prefix and query. */
  path: string
  status: number
  body: unknown
}

/** The table alone: no handler of it is ever called. */
export function describedRoutes(): Route[] {
  return apiRoutes({
    features: { administration: {} } as HttpFeatures,
    logger: createLogger({ level: 'silent' }),
    mostMailBytes: 1,
    mostRecipients: 1_000,
  })
}

const FIRST_ERROR = 400
const table = createRouteTable(describedRoutes())

export function checkResponse({ method, path, status, body }: SeenResponse): void {
  // The console answers with pages.
  if (path.startsWith('/console/')) return
  const place = `${method} ${path} answered ${status}`
  if (status >= FIRST_ERROR) return requireFit(errorSchema, body, place)
  const found = table.find(path.split('?')[0] ?? '', method)
  // What is no route of the API is answered by handlers of others.
  if (found.kind !== 'found') return
  const { ok } = found.route
  if (status !== ok.status && status !== ok.otherStatus) throw new Error(`${place}, which its route does not promise`)
  if (ok.otherType === undefined || typeof body !== 'string') requireFit(ok.schema, body, place)
}

/** Parsing leaves out what the schema does not name: then the two differ. */
function requireFit(schema: z.ZodType, body: unknown, place: string): void {
  const parsed = schema.safeParse(body)
  const problem = parsed.success ? 'it has fields that its schema does not have' : parsed.error.message
  if (!parsed.success || !isDeepStrictEqual(parsed.data, body)) {
    throw new Error(`${place} with a body that does not fit: ${problem}\n${JSON.stringify(body)}`)
  }
}
