/**
 * The suppression list (http/README.md "Suppressions"). Mail of test keys has a list of its own, which only test keys
 * see. Every change leaves a log line that says who asked for it.
 */
import type { Logger } from '../../base/logger.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import type { Principal } from '../exchange/principal.ts'
import {
  addSuppressionSchema,
  listSuppressionsSchema,
  removeSuppressionSchema,
  toGivenSuppression,
  toSuppressionQuery,
} from '../requests/suppression.ts'
import { importedSchema, removedSuppressionsSchema, suppressionSchema } from '../responses/suppression.ts'
import {
  dataSchema,
  listSchema,
  route,
  routeWithQuery,
  routeWithText,
  success,
  successList,
} from '../exchange/route.ts'
import type { ApiRequest, Route } from '../exchange/route.ts'

const CREATED = 201
const OK = 200
/** http/README.md "Limits". */
const MOST_IMPORT_BYTES = 10 * 1024 * 1024

export function suppressionRoutes({ suppressions }: Pick<HttpFeatures, 'suppressions'>, logger: Logger): Route[] {
  const note: Note = (what, { requestId, principal }, facts) =>
    logger.info({ ...facts, request_id: requestId, api_key: principal.label }, what)
  return [...readingRoutes(suppressions), ...changingRoutes(suppressions, note), importRoute(suppressions, note)]
}

type Suppressions = HttpFeatures['suppressions']
type Note = (what: string, request: ApiRequest, facts: Record<string, string | number>) => void

function readingRoutes(suppressions: Suppressions): Route[] {
  return [
    routeWithQuery({
      method: 'GET',
      path: '/suppressions',
      summary: 'Lists the addresses that nothing is sent to, newest first.',
      scope: 'suppressions',
      query: listSuppressionsSchema,
      ok: { status: OK, schema: listSchema(suppressionSchema) },
      errors: [],
      async handler({ principal }, parameters) {
        const page = await suppressions.list(toSuppressionQuery(parameters), isTest(principal))
        return successList(page.suppressions, page.next)
      },
    }),
  ]
}

function changingRoutes(suppressions: Suppressions, note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/suppressions',
      summary: 'Puts an address on the suppression list.',
      scope: 'suppressions',
      body: addSuppressionSchema,
      ok: { status: CREATED, otherStatus: OK, schema: dataSchema(suppressionSchema) },
      errors: [],
      idempotency: 'after-answer',
      async handler(request, fields) {
        const { suppression, isNew } = await suppressions.add(toGivenSuppression(fields), isTest(request.principal))
        if (isNew) note('suppression added', request, { suppression_id: suppression.id })
        return success(isNew ? CREATED : OK, suppression)
      },
    }),
    routeWithQuery({
      method: 'DELETE',
      path: '/suppressions/:email',
      summary: 'Takes an address off the suppression list, for one scope or for all.',
      scope: 'suppressions',
      query: removeSuppressionSchema,
      ok: { status: OK, schema: dataSchema(removedSuppressionsSchema) },
      errors: ['not_found'],
      async handler(request, { scope }) {
        const { params, principal } = request
        const removed = await suppressions.remove(params['email'] ?? '', scope ?? null, isTest(principal))
        note('suppression removed', request, removed)
        return success(OK, removed)
      },
    }),
  ]
}

function importRoute(suppressions: Suppressions, note: Note): Route {
  return routeWithText({
    method: 'POST',
    path: '/suppressions/import',
    summary: 'Adds the addresses of a CSV file with the header line email[,reason][,scope].',
    scope: 'suppressions',
    contentType: 'text/csv',
    bodyLimit: { bytes: MOST_IMPORT_BYTES, code: 'payload_too_large' },
    ok: { status: OK, schema: dataSchema(importedSchema) },
    errors: [],
    async handler(request, text) {
      const imported = await suppressions.import(text, isTest(request.principal))
      note('suppressions imported', request, { added: imported.added })
      return success(OK, imported)
    },
  })
}

function isTest({ mode }: Principal): boolean {
  return mode === 'test'
}
