/**
 * The OpenAPI document, the router and the contract say the same, and every example fits its schema.
 */
import { execFile } from 'node:child_process'
import { isDeepStrictEqual, promisify } from 'node:util'
import t, { type Test } from 'tap'
import type { z } from 'zod'
import { openApiDocument, openApiPath } from '../../src/http/openapi/document.ts'
import { EXAMPLES, WEBHOOK_EXAMPLES } from '../../src/http/openapi/examples.ts'
import { DESCRIPTIONS } from '../../src/http/openapi/json-schema.ts'
import { errorSchema } from '../../src/api/envelope.ts'
import { checksSchema } from '../../src/api/health.ts'
import { keySchema } from '../../src/api/key.ts'
import { listedMessageSchema } from '../../src/api/message.ts'
import { webhookEventSchema } from '../../src/api/webhook.ts'
import { RESULTS } from '../../src/health/checks/check.ts'
import { curlOf } from '../../src/console/screens/api-curl.ts'
import { GIVEN_EVENT_KINDS, type WebhookEventKind } from '../../src/mail/event.ts'
import { MESSAGE_STATES } from '../../src/mail/message.ts'
import { SCOPES } from '../../src/senders/api-key.ts'
import { missingPrograms } from '../support/programs.ts'
import { describedRoutes } from '../support/response-check.ts'
import { ask, get, keyNamed, startApi } from './api-server.ts'
import { CONTRACT_ENDPOINTS, EVENT_KINDS } from './contract-endpoints.ts'

interface Operation {
  operationId: string
  summary: string
  tags: string[]
  security: object[]
  parameters: { name: string; in: string; required: boolean }[]
  requestBody?: { content: Record<string, object> }
  responses: Record<string, { content: Record<string, { schema: object; example?: unknown }> }>
}

interface Document {
  openapi: string
  paths: Record<string, Record<string, Operation>>
  webhooks: Record<string, { post: Operation }>
  components: { schemas: Record<string, object>; securitySchemes: object }
}

const routes = describedRoutes().filter(({ isInternal }) => isInternal !== true)
const nameOf = ({ method, path }: { method: string; path: string }): string => `${method} ${path}`
const routeNames = routes.map(({ method, path }) => nameOf({ method, path: openApiPath(path) }))

t.test('fields have descriptions, and every description has its field', (t) => {
  const document = openApiDocument(routes, '0.0.0') as Document
  const text = JSON.stringify(document)
  const unused = Object.entries(DESCRIPTIONS).filter(([, sentence]) => !text.includes(JSON.stringify(sentence)))
  t.same(unused, [])
  const properties = (id: string) =>
    (document.components.schemas[id] as { properties: Record<string, object> }).properties
  for (const id of ['SendRequest', 'BatchRequest', 'SendResult']) {
    const bare = Object.entries(properties(id)).filter(([, field]) => !('description' in field))
    t.same(
      bare.map(([name]) => name),
      id === 'SendResult' ? ['status', 'reason', 'recipients'] : [],
      id,
    )
  }
  t.match(document.paths['/email']?.['get']?.parameters[0], { name: 'recipient', description: /capitals/ })
  t.end()
})

async function served(t: Test): Promise<{ document: Document; port: number }> {
  const { port } = await startApi(t)
  const { status, text, headers } = await get(port, '/v1/openapi.json', null)
  t.equal(status, 200)
  t.equal(headers['content-type'], 'application/json; charset=utf-8')
  t.equal((await get(port, '/api/v1/openapi.json', null)).text, text)
  return { document: JSON.parse(text), port }
}

const operationsOf = ({ paths }: Document): [name: string, operation: Operation][] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(
      ([method, operation]) => [nameOf({ method: method.toUpperCase(), path }), operation] as [string, Operation],
    ),
  )

t.test('the contract, the router and the document have the same endpoints', async (t) => {
  const { document, port } = await served(t)
  const promised = CONTRACT_ENDPOINTS.map(nameOf)
  const documented = operationsOf(document).map(([name]) => name)
  t.same(
    promised.filter((name) => !routeNames.includes(name)),
    [],
    'what the contract promises is in the router',
  )
  t.same(
    routeNames.filter((name) => !promised.includes(name)),
    [],
    'what is in the router is in the contract',
  )
  t.same(documented.toSorted(), routeNames.toSorted(), 'the document is the router')
  t.equal(new Set(routeNames).size, routeNames.length)
  for (const name of documented) {
    const [method = '', path = ''] = name.split(' ')
    // The one answer that has no end.
    const asked = path === '/webhooks/stream' ? 'HEAD' : method
    const { status, json } = await ask(port, { method: asked, path: `/v1${path.replace(/\{\w+\}/g, 'x')}` })
    t.ok(status !== 405 && json.error?.details.startsWith('path ') !== true, `${name} answers`)
  }
})

t.test('every kind of event is under webhooks', async (t) => {
  const { document } = await served(t)
  t.same(
    Object.keys(document.webhooks).filter((kind) => !EVENT_KINDS.includes(kind)),
    [],
  )
  t.same(
    EVENT_KINDS.filter((kind) => !(kind in document.webhooks)),
    [],
  )
  for (const [kind, { post }] of Object.entries(document.webhooks)) {
    t.ok(
      post.parameters.some(({ name }) => name === 'X-Service-Signature'),
      kind,
    )
  }
})

t.test('every operation is whole: id, summary, tag, key, parameters, errors with their codes', async (t) => {
  const { document } = await served(t)
  t.equal(document.openapi, '3.1.0')
  t.match(document.components.securitySchemes, { apiKey: { type: 'http', scheme: 'bearer' } })
  const operations = [
    ...operationsOf(document),
    ...Object.entries(document.webhooks).map(([kind, { post }]) => [kind, post] as const),
  ]
  t.equal(new Set(operations.map(([, { operationId }]) => operationId)).size, operations.length)
  for (const [name, operation] of operationsOf(document)) {
    const isPublic = /(health|openapi\.json)$/.test(name)
    t.match(operation.operationId, /^[a-z][A-Za-z]+$/, name)
    t.match(operation.summary, /^[A-Z].*\.$/, name)
    t.equal(operation.tags.length, 1, name)
    t.same(operation.security, isPublic ? [] : [{ apiKey: [] }], name)
    const inPath = operation.parameters.filter((parameter) => parameter.in === 'path')
    const named = [...name.matchAll(/\{(\w+)\}/g)].map(([, parameter]) => parameter)
    t.same(
      inPath.map((parameter) => parameter.name),
      named,
      name,
    )
    for (const [status, { content }] of Object.entries(operation.responses)) {
      if (Number(status) < 400) continue
      const { schema, example } = content['application/json'] ?? { schema: {} }
      t.same(schema, { $ref: '#/components/schemas/Error' }, `${name} ${status}`)
      t.ok(errorSchema.safeParse(example).success, `${name} ${status}`)
    }
    const needed = isPublic ? ['500', '503'] : ['401', '403', '429', '500', '503']
    for (const status of needed) t.ok(status in operation.responses, `${name} ${status}`)
  }
  const takesKey = operationsOf(document)
    .filter(([, { parameters }]) => parameters.some((parameter) => parameter.name === 'Idempotency-Key'))
    .map(([name]) => name)
  t.same(takesKey.toSorted(), [
    'POST /domains',
    'POST /email/batch',
    'POST /email/send',
    'POST /email/{message_id}/retry',
    'POST /keys',
    'POST /suppressions',
    'POST /webhooks',
  ])
})

t.test('every reference leads to a component, and every component is used', async (t) => {
  const { document } = await served(t)
  const text = JSON.stringify(document)
  const used = new Set([...text.matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)].map(([, name]) => name))
  t.same([...used].toSorted(), Object.keys(document.components.schemas).toSorted())
  t.notMatch(text, /"\$(defs|schema|id)"/)
  t.notMatch(text, 'sandbox')
})

/** Parsing leaves out what a schema does not name: then the two differ. */
function fits(schema: z.ZodType, example: unknown): string {
  const parsed = schema.safeParse(example)
  if (!parsed.success) return parsed.error.message
  return isDeepStrictEqual(parsed.data, example) ? 'fits' : 'has fields that the schema does not have'
}

t.test('every example fits its schema, and belongs to a route or a kind', async (t) => {
  const known = routes.map(nameOf)
  t.same(
    Object.keys(EXAMPLES).filter((name) => !known.includes(name)),
    [],
  )
  for (const route of routes) {
    const { request, response } = EXAMPLES[nameOf(route)] ?? {}
    if (response !== undefined) t.equal(fits(route.ok.schema, response), 'fits', nameOf(route))
    if (request !== undefined && route.body !== null) t.equal(fits(route.body.schema, request), 'fits', nameOf(route))
  }
  for (const kind of GIVEN_EVENT_KINDS) {
    const example = WEBHOOK_EXAMPLES[kind]
    t.equal(fits(webhookEventSchema(kind), example), 'fits', kind)
  }
  t.not(fits(webhookEventSchema('email.bounced' satisfies WebhookEventKind), { event: 'email.bounced' }), 'fits')
})

t.test('two schemas with one id are a mistake that is found', async (t) => {
  const [route] = routes
  if (route === undefined) throw new Error('there are no routes')
  const renamed = { ...route, path: '/x', ok: { ...route.ok, schema: errorSchema.shape.error.meta({ id: 'Error' }) } }
  t.throws(() => openApiDocument([route, renamed], '1'), /two schemas have the id Error/)
})

t.test('words that the wire writes once more are those of the folders that know them', async (t) => {
  t.same(keySchema.shape.scopes.element.options, SCOPES)
  t.same(listedMessageSchema.shape.state.options, MESSAGE_STATES)
  t.same(checksSchema.shape.checks.element.shape.result.options, RESULTS)
})

t.test('the curl of the console is one that a shell runs', { skip: missingPrograms({ curl: ['curl'] }) }, async (t) => {
  const { document, port } = await served(t)
  const run = async (name: string): Promise<string> => {
    const [method = '', path = ''] = name.split(' ')
    const operation = document.paths[path]?.[method.toLowerCase()] ?? {}
    const curl = curlOf(`http://127.0.0.1:${port}/v1`, { method, path, operation })
    return (await promisify(execFile)('sh', ['-c', curl.replace('KEY', keyNamed('admin'))])).stdout
  }
  t.match(await run('POST /suppressions/import'), '"added":1')
  t.match(await run('POST /email/preview'), '"success":true')
  t.match(await run('GET /email/{message_id}'), 'MESSAGE_ID')
})
