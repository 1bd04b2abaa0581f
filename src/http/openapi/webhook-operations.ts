/**
 * The section `webhooks` of the OpenAPI document: every kind of event as the request that an endpoint receives
 * (http/README.md "Events" to 8.4).
 */
import { FURTHER_EVENT_KINDS, GIVEN_EVENT_KINDS } from '../../mail/event.ts'
import { webhookEventSchema } from '../responses/webhook-event.ts'
import { WEBHOOK_EXAMPLES } from './examples.ts'
import type { SchemaComponents } from './json-schema.ts'

const HEADERS: Record<string, string> = {
  'X-Service-Signature': 'HMAC-SHA256 of the raw body, keyed with the secret of the endpoint, in lower-case hex.',
  'X-Service-Event-Id': 'The same on every delivery of the event.',
  'X-Service-Delivery-Id': 'The same on the retries of a delivery.',
  'X-Service-Attempt': 'From 1 on.',
  'X-Service-Timestamp': 'Time of this attempt, Unix seconds.',
  'X-Service-Signature-V2': 't=<X-Service-Timestamp>,v1=<HMAC-SHA256 of t, a dot and the body, in hex>.',
  'X-Service-Signature-Next': 'During a rotation: as X-Service-Signature, with the secret that takes over.',
}
const SOMETIMES = ['X-Service-Signature-Next']

export function webhookOperations(schemas: SchemaComponents): Record<string, object> {
  const parameters = Object.entries(HEADERS).map(([name, description]) => ({
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
