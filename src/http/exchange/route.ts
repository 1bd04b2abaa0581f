/**
 * A route: one entry of the table from which the router, validation, types and the OpenAPI document come.
 *
 * Handlers get the fields of their request in camelCase; what is absent is null. What they answer has the names of the
 * wire.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { z } from 'zod'
import { noFieldsSchema } from '../../api/fields.ts'
import { camelFields, type CamelFields } from '../../api/names.ts'
import { ServiceError, type ServiceErrorCode } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { IdempotencyEntry } from '../../messages/accept/send-request.ts'
import type { Scope } from '../../senders/api-key.ts'
import type { Answer, OkAnswer } from './answer.ts'
import type { BodyLimit } from './body-reader.ts'
import type { Logins } from './logins.ts'
import type { Principal } from './principal.ts'
import { createFieldReader, describeProblem, type ReadFields } from './read-fields.ts'
import { unsafeStrings, type JsonDocument } from './read-json.ts'

/** What a handler knows of a request beside its fields. */
export interface ApiRequest {
  requestId: string
  principal: Principal
  /** Of the path, percent-decoded. */
  params: Record<string, string>
  /** Below the prefix, as it came. */
  path: string
  /** What follows the question mark, as it came. */
  search: string
  /** null: no Idempotency-Key, or the route takes none. */
  idempotency: IdempotencyEntry | null
  /** Of the request, names in lower case. */
  headers: IncomingHttpHeaders
  /** A header of the answer. */
  setHeader(name: string, value: string): void
  /** Adds a text to X-Service-Warnings. */
  warn(text: string): void
}

interface RouteFacts {
  /** What it does, as a sentence. */
  summary: string
  ok: OkAnswer
  /** Errors beside those that every route of its kind can answer with. */
  errors?: ServiceErrorCode[]
  /**
   * Left out: an Idempotency-Key means nothing here. `with-message`: the handler commits it with what it stores.
   * `after-answer`: the answer is kept once it is there.
   */
  idempotency?: 'with-message' | 'after-answer'
}

type Handler<Given> = (request: ApiRequest, given: Given) => Promise<Answer>

interface RouteWithQuery<Schema extends z.ZodObject> extends RouteFacts {
  /** Parameters behind the question mark: texts all of them. Left out: none are read. */
  query?: Schema
  handler: Handler<CamelFields<z.infer<Schema>>>
}

interface RouteWithBody<Schema extends z.ZodObject> extends RouteFacts {
  /** Left out: everything is said by the path. */
  body?: Schema
  handler: Handler<CamelFields<z.infer<Schema>>>
}

interface LenientRoute<Given> extends RouteFacts {
  body: z.ZodType<Given>
  bodyLimit: BodyLimit
  handler: Handler<ReadFields<Given>>
}

interface RouteWithText extends RouteFacts {
  contentType: Exclude<RouteBody['contentType'], 'application/json'>
  bodyLimit: BodyLimit
  handler: Handler<string>
}

/** What a route does with a body. */
export interface RouteBody {
  contentType: 'application/json' | 'text/csv'
  schema: z.ZodType
  /** null: the limit of most routes. */
  limit: BodyLimit | null
  /** True when no body at all counts as `{}`. */
  takesNothing: boolean
}

export interface Route extends RouteFacts {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Below the prefixes; `:name` is a parameter. */
  path: string
  scope: Scope | null
  /** True: for the command line of the same version, and not in openapi.json. */
  isInternal?: true
  /** True: in the console for owners alone. */
  isForOwners?: true
  /** null: none are read. */
  query: z.ZodType | null
  /** null: it takes none. */
  body: RouteBody | null
  /** `document` is meaningless where `body` is null, and a string where the body is no JSON. May throw at once. */
  handle(request: ApiRequest, document: JsonDocument): Promise<Answer>
}

/** Stands for a body that is not there. */
export const EMPTY_DOCUMENT: JsonDocument = { value: Object.freeze({}), unsafe: [] }

/** What makes the routes of one scope; null: they are public, no key needed. */
export function routesOf(scope: Scope | null) {
  return {
    get: <Schema extends z.ZodObject = NoFields>(path: string, given: RouteWithQuery<Schema>): Route =>
      queryRoute({ method: 'GET', path, scope }, given),
    remove: <Schema extends z.ZodObject = NoFields>(path: string, given: RouteWithQuery<Schema>): Route =>
      queryRoute({ method: 'DELETE', path, scope }, given),
    /** Field problems refuse the request: 422 with all of them. */
    post: <Schema extends z.ZodObject = NoFields>(path: string, given: RouteWithBody<Schema>): Route =>
      bodyRoute({ method: 'POST', path, scope }, given),
    patch: <Schema extends z.ZodObject>(path: string, given: RouteWithBody<Schema>): Route =>
      bodyRoute({ method: 'PATCH', path, scope }, given),
    /** The handler judges the problems itself, and gets the names of the wire. */
    lenientPost: <Given>(path: string, given: LenientRoute<Given>): Route =>
      lenientRoute({ method: 'POST', path, scope }, given),
    /** Takes a text that is no JSON, UTF-8. */
    postText: (path: string, given: RouteWithText): Route => textRoute({ method: 'POST', path, scope }, given),
  }
}

type NoFields = typeof noFieldsSchema
type Place = Pick<Route, 'method' | 'path' | 'scope'>

/** Of a parameter given twice the last one counts, as of a repeated key in JSON. */
function queryRoute<Schema extends z.ZodObject>(place: Place, definition: RouteWithQuery<Schema>): Route {
  const { query = null, handler, ...facts } = definition
  const read = query === null ? null : fieldsReader(query)
  return {
    ...place,
    ...facts,
    query,
    body: null,
    async handle(request) {
      if (read === null) return handler(request, EMPTY_DOCUMENT.value as CamelFields<z.infer<Schema>>)
      const value = Object.fromEntries(new URLSearchParams(request.search))
      return handler(
        request,
        read(request, { value, unsafe: request.search.includes('%') ? unsafeStrings(value) : [] }),
      )
    },
  }
}

function bodyRoute<Schema extends z.ZodObject>(place: Place, definition: RouteWithBody<Schema>): Route {
  const { body, handler, ...facts } = definition
  const schema = body ?? noFieldsSchema
  const read = fieldsReader(schema as Schema)
  const takesNothing = schema.safeParse({}).success
  return {
    ...place,
    ...facts,
    query: null,
    body: { contentType: 'application/json', schema, limit: null, takesNothing },
    handle: async (request, document) => handler(request, read(request, document)),
  }
}

function fieldsReader<Schema extends z.ZodObject>(schema: Schema) {
  const reader = createFieldReader(schema)
  return (request: ApiRequest, document: JsonDocument): CamelFields<z.infer<Schema>> => {
    const { fields, problems } = warned(request, reader.read(document))
    if (fields !== null) return camelFields(schema, fields)
    throw new ServiceError('invalid_request', problems.map(describeProblem).join('; '))
  }
}

function lenientRoute<Given>(place: Place, definition: LenientRoute<Given>): Route {
  const { body: schema, bodyLimit: limit, handler, ...facts } = definition
  const reader = createFieldReader(schema)
  return {
    ...place,
    ...facts,
    query: null,
    body: { contentType: 'application/json', schema, limit, takesNothing: reader.takesNothing },
    handle: (request, document) => handler(request, warned(request, reader.read(document))),
  }
}

function warned<Fields>(request: ApiRequest, read: ReadFields<Fields>): ReadFields<Fields> {
  for (const name of read.unknown) request.warn(name)
  return read
}

function textRoute(place: Place, definition: RouteWithText): Route {
  const { contentType, bodyLimit: limit, handler, ...facts } = definition
  const body = { contentType, schema: z.string(), limit, takesNothing: false }
  return { ...place, ...facts, query: null, body, handle: (request, { value }) => handler(request, String(value)) }
}

/** Of the path. */
export function param({ params }: ApiRequest, name: string): string {
  return params[name] ?? ''
}

/** Writes to the log and to the audit who did what. */
export type Note = (what: string, request: Pick<ApiRequest, 'requestId' | 'principal'>, facts: object) => void

export function createNote(logger: Logger, logins: Pick<Logins, 'note'>): Note {
  return (act, { requestId, principal: { label: actor } }, facts) => {
    logger.info({ ...facts, request_id: requestId, api_key: actor }, act)
    logins.note({ actor, act, facts, requestId })
  }
}
