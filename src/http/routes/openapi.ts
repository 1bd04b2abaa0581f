/**
 * GET /openapi.json (http/README.md "Health, metrics, OpenAPI"): public, the document of all routes of the contract,
 * itself included.
 */
import { z } from 'zod'
import { packageVersion } from '../../base/package-version.ts'
import { openApiDocument } from '../openapi/document.ts'
import { routeWithoutBody } from '../exchange/route.ts'
import type { Route } from '../exchange/route.ts'

const OK = 200

/** These routes and the one that describes them. */
export function withOpenApi(routes: readonly Route[]): Route[] {
  const all = [...routes, openApiRoute(() => document)]
  const document = openApiDocument(
    all.filter(({ isInternal }) => isInternal !== true),
    packageVersion(),
  )
  return all
}

function openApiRoute(document: () => object): Route {
  return routeWithoutBody({
    method: 'GET',
    path: '/openapi.json',
    summary: 'This document.',
    scope: null,
    body: null,
    ok: { status: OK, schema: z.looseObject({ openapi: z.string(), info: z.looseObject({}) }) },
    errors: [],
    handler: async () => ({ status: OK, body: document() }),
  })
}
