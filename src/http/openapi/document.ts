/**
 * The OpenAPI 3.1 document of the API, made of the table of routes with the very schemas that read the requests: what
 * is in the router is in the document and the reverse. Pure; throws only for a mistake in the table.
 */
import { errorSchema } from '../../api/envelope.ts'
import { webhookEventSchema } from '../../api/webhook.ts'
import type { ServiceErrorCode } from '../../base/errors.ts'
import { isPlainObject } from '../../base/plain-object.ts'
import { FURTHER_EVENT_KINDS, GIVEN_EVENT_KINDS } from '../../mail/event.ts'
import { ERROR_RULES, errorBody } from '../exchange/error-responses.ts'
import type { Route } from '../exchange/route.ts'
import { EXAMPLES, WEBHOOK_EXAMPLES } from './examples.ts'
import { createSchemaComponents, described, type OpenApiSchema, type SchemaComponents } from './json-schema.ts'

export function openApiDocument(routes: readonly Route[], version: string): object {
  const schemas = createSchemaComponents()
  const paths: Record<string, Record<string, object>> = {}
  for (const route of routes) {
    const path = (paths[openApiPath(route.path)] ??= {})
    path[route.method.toLowerCase()] = operation(route, schemas)
  }
  const tags = [...new Set(routes.map(tagOf))].map((name) => ({ name }))
  const webhooks = webhookOperations(schemas)
  return {
    openapi: '3.1.0',
    info: { title: 'Sternpost', summary: 'Sends email from your own domains and tells what became of it.', version },
    servers: [{ url: '/v1' }],
    tags,
    paths,
    webhooks,
    components: {
      schemas: schemas.components(),
      securitySchemes: { apiKey: { type: 'http', scheme: 'bearer', description: 'sk_live_… or sk_test_…' } },
    },
  }
}

/** `/email/:id` -> `/email/{message_id}` */
export function openApiPath(path: string): string {
  return path.replace(/:(\w+)/g, '{$1}')
}

function operation(route: Route, schemas: SchemaComponents): object {
  const { scope, summary, body } = route
  return {
    operationId: operationId(route),
    summary,
    ...(scope === null ? {} : { description: `Needs an API key with the scope \`${scope}\`.` }),
    tags: [tagOf(route)],
    security: scope === null ? [] : [{ apiKey: [] }],
    parameters: [...pathParameters(route), ...queryParameters(route, schemas), ...headerParameters(route)],
    ...(body === null ? {} : { requestBody: requestBody(route, body, schemas) }),
    responses: { ...okResponses(route, schemas), ...errorResponses(route, schemas) },
  }
}

/** `GET /email/:message_id/events` -> `getEmailByMessageIdEvents` */
function operationId({ method, path }: Route): string {
  const words = path
    .replace(/:(\w+)/g, 'by $1')
    .split(/[^A-Za-z0-9]+/)
    .filter((word) => word !== '')
  return method.toLowerCase() + words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('')
}

function tagOf({ path }: Route): string {
  return path.split(/[/.]/)[1] ?? ''
}

function pathParameters({ path }: Route): object[] {
  return [...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    ...described(name ?? '', {}),
    schema: { type: 'string' },
  }))
}

/** Absent is the only way for a parameter to have no value. */
function queryParameters({ query }: Route, schemas: SchemaComponents): object[] {
  if (query === null) return []
  const { properties, required } = schemas.schemaOf(query)
  const needed = Array.isArray(required) ? required : []
  return Object.entries(isPlainObject(properties) ? properties : {}).map(([name, property]) => {
    const { description, ...schema } = withoutNull(isPlainObject(property) ? property : {})
    return { name, in: 'query', required: needed.includes(name), description, schema }
  })
}

function withoutNull({ type, enum: choices, ...rest }: OpenApiSchema): OpenApiSchema {
  const [only] = Array.isArray(type) ? type : [type]
  const values = Array.isArray(choices) ? { enum: choices.filter((choice) => choice !== null) } : {}
  return { type: only, ...values, ...rest }
}

function headerParameters({ idempotency, path }: Route): object[] {
  const key = {
    name: 'Idempotency-Key',
    in: 'header',
    required: false,
    description: 'A repeat within 24 hours gets the first answer again. X-Idempotency-Key means the same.',
    schema: { type: 'string', minLength: 1, maxLength: 256 },
  }
  const validation = {
    name: 'X-Batch-Validation',
    in: 'header',
    required: false,
    description: '`strict`: one bad recipient refuses the whole batch.',
    schema: { type: 'string', enum: ['strict', 'permissive'], default: 'permissive' },
  }
  return [...(idempotency === undefined ? [] : [key]), ...(path === '/email/batch' ? [validation] : [])]
}

function requestBody(route: Route, body: NonNullable<Route['body']>, schemas: SchemaComponents): object {
  const example = EXAMPLES[nameOf(route)]?.request
  const content = { schema: schemas.schemaOf(body.schema), ...(example === undefined ? {} : { example }) }
  return { required: !body.takesNothing, content: { [body.contentType]: content } }
}

function okResponses(route: Route, schemas: SchemaComponents): Record<string, object> {
  const { status, otherStatus, schema, contentType = 'application/json', otherType } = route.ok
  const example = EXAMPLES[nameOf(route)]?.response
  const content = {
    [contentType]: { schema: schemas.schemaOf(schema), ...(example === undefined ? {} : { example }) },
    ...(otherType === undefined ? {} : { [otherType]: { schema: { type: 'string' } } }),
  }
  const statuses = otherStatus === undefined ? [status] : [status, otherStatus]
  return Object.fromEntries(statuses.map((each) => [each, { description: DESCRIPTIONS[each] ?? 'Done.', content }]))
}

const DESCRIPTIONS: Record<number, string> = { 200: 'Done.', 201: 'Created.', 202: 'Begun.' }

function nameOf({ method, path }: Route): string {
  return `${method} ${path}`
}

/** All codes under one status share a response. */
function errorResponses(route: Route, schemas: SchemaComponents): Record<string, object> {
  const schema = schemas.schemaOf(errorSchema)
  return Object.fromEntries(
    [...errorsOf(route)].map(([status, codes]) => {
      const [first = 'internal_error'] = codes
      const description = `The code is ${[...codes].map((code) => `\`${code}\``).join(' or ')}.`
      const example = { success: false, error: errorBody(first, '') }
      const headers = WITH_RETRY_AFTER.includes(status) ? { headers: { 'Retry-After': RETRY_AFTER } } : {}
      return [status, { description, ...headers, content: { 'application/json': { schema, example } } }]
    }),
  )
}

const WITH_RETRY_AFTER = [429, 503]
const RETRY_AFTER = { description: 'Whole seconds.', schema: { type: 'integer' } }

/** By status: the route's own, and those of every route of its kind. */
function errorsOf({ path, scope, query, body, errors = [], idempotency }: Route): Map<number, Set<ServiceErrorCode>> {
  const found = new Map<number, Set<ServiceErrorCode>>()
  const add = (code: ServiceErrorCode, status = ERROR_RULES[code].status): void => {
    found.set(status, (found.get(status) ?? new Set()).add(code))
  }
  if (path.includes(':')) add('not_found')
  for (const code of errors) add(code)
  if (scope !== null) for (const code of ['unauthorized', 'forbidden', 'rate_limited'] as const) add(code)
  if (query !== null || body !== null) add('invalid_request')
  if (body !== null) {
    add('invalid_request', 400)
    add('invalid_request', 415)
    add(body.limit?.code ?? 'payload_too_large')
  }
  if (idempotency !== undefined) add('conflict')
  add('internal_error')
  add('unavailable')
  return found
}

const WEBHOOK_HEADERS: Record<string, string> = {
  'X-Service-Signature': 'HMAC-SHA256 of the raw body, keyed with the secret of the endpoint, in lower-case hex.',
  'X-Service-Event-Id': 'The same on every delivery of the event.',
  'X-Service-Delivery-Id': 'The same on the retries of a delivery.',
  'X-Service-Attempt': 'From 1 on.',
  'X-Service-Timestamp': 'Time of this attempt, Unix seconds.',
  'X-Service-Signature-V2': 't=<X-Service-Timestamp>,v1=<HMAC-SHA256 of t, a dot and the body, in hex>.',
  'X-Service-Signature-Next': 'During a rotation: as X-Service-Signature, with the secret that takes over.',
}
const SOMETIMES = ['X-Service-Signature-Next']

/** The section `webhooks`: every kind of event as the request that an endpoint receives. */
function webhookOperations(schemas: SchemaComponents): Record<string, object> {
  const parameters = Object.entries(WEBHOOK_HEADERS).map(([name, description]) => ({
    name,
    in: 'header',
    required: !SOMETIMES.includes(name),
    description,
    schema: { type: 'string' },
  }))
  const operations = [...GIVEN_EVENT_KINDS, ...FURTHER_EVENT_KINDS].map((kind) => {
    const example = WEBHOOK_EXAMPLES[kind]
    const schema = schemas.schemaOf(webhookEventSchema(kind))
    const content = example === undefined ? { schema } : { schema, example }
    const post = {
      operationId: `on${kind
        .split('.')
        .map((word) => word.charAt(0).toUpperCase() + word.slice(1))
        .join('')}`,
      summary: `The event ${kind}.`,
      parameters,
      requestBody: { required: true, content: { 'application/json': content } },
      responses: { 200: { description: 'Received. Every other status is a failure and is tried again.' } },
    }
    return [kind, { post }] as const
  })
  return Object.fromEntries(operations)
}
