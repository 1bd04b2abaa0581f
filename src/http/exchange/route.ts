/**
 * A route: one entry of the table from which the router, validation, types and the OpenAPI document come.
 */
import type { IncomingHttpHeaders } from 'node:http'
import { z } from 'zod'
import { ServiceError } from '../../base/errors.ts'
import type { ServiceErrorCode } from '../../base/errors.ts'
import { createFieldReader, describeProblem } from './read-fields.ts'
import type { ReadFields } from './read-fields.ts'
import type { BodyLimit } from './body-reader.ts'
import type { JsonDocument } from './read-json.ts'
import type { IdempotencyEntry } from '../../messages/accept/send-request.ts'
import type { Scope } from '../../senders/api-key.ts'
import type { Principal } from './principal.ts'

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

export interface Answer {
  status: number
  /** Sent as JSON; a text is sent as it is. */
  body: object | string
  /** In place of the body: sent piece by piece, as it comes, until the client is gone or the server stops. */
  stream?: (ended: AbortSignal) => AsyncIterable<string>
}

/** What a success looks like. */
export interface OkAnswer {
  status: number
  /** A second status with the same body, e.g. 200 where nothing new was made. */
  otherStatus?: number
  /** Of the whole body: made with `dataSchema` or `listSchema` but for the send results. */
  schema: z.ZodType
  /** Left out: JSON. */
  contentType?: 'text/plain' | 'text/event-stream'
}

interface RouteFacts {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Below the prefixes; `:name` is a parameter. */
  path: string
  /** What it does, as a sentence. */
  summary: string
  /** null: public, no key needed. */
  scope: Scope | null
  ok: OkAnswer
  /** Errors beside those that every route can answer with. */
  errors: ServiceErrorCode[]
  /**
   * Left out: an Idempotency-Key means nothing here. `with-message`: the handler commits it with what it stores.
   * `after-answer`: the answer is kept once it is there.
   */
  idempotency?: 'with-message' | 'after-answer'
  /** True: for the command line of the same version, and not in openapi.json. */
  isInternal?: true
}

export interface RouteWithoutBody extends RouteFacts {
  body: null
  handler(request: ApiRequest): Promise<Answer>
}

interface RouteWithQuery<Parameters> extends RouteFacts {
  /** Parameters behind the question mark: texts all of them. */
  query: z.ZodType<Parameters>
  handler(request: ApiRequest, parameters: Parameters): Promise<Answer>
}

interface RouteWithBody<Given, Fields> extends RouteFacts {
  body: z.ZodType<Given>
  /** Left out: the limit of most routes. */
  bodyLimit?: BodyLimit
  handler(request: ApiRequest, fields: Fields): Promise<Answer>
}

interface RouteWithText extends RouteFacts {
  contentType: Exclude<RouteBody['contentType'], 'application/json'>
  bodyLimit: BodyLimit
  handler(request: ApiRequest, text: string): Promise<Answer>
}

/** What a route does with a body: null stands for "takes none". */
export interface RouteBody {
  contentType: 'application/json' | 'text/csv'
  schema: z.ZodType
  /** null: the limit of most routes. */
  limit: BodyLimit | null
  /** True when no body at all counts as `{}`. */
  takesNothing: boolean
}

export interface Route extends RouteFacts {
  /** null: none are read. */
  query: z.ZodType | null
  body: RouteBody | null
  /** `document` is meaningless where `body` is null, and a string where the body is no JSON. May throw at once. */
  handle(request: ApiRequest, document: JsonDocument): Promise<Answer>
}

/** Stands for a body that is not there. */
export const EMPTY_DOCUMENT: JsonDocument = { value: Object.freeze({}), hasEscapes: false }

export function routeWithoutBody({ handler, ...facts }: RouteWithoutBody): Route {
  return { ...facts, query: null, handle: (request) => handler(request) }
}

/** Takes no body. Of a parameter given twice the last one counts, as of a repeated key in JSON. */
export function routeWithQuery<Parameters>({ query, handler, ...facts }: RouteWithQuery<Parameters>): Route {
  const reader = createFieldReader(query)
  return {
    ...facts,
    query,
    body: null,
    async handle(request) {
      const value = Object.fromEntries(new URLSearchParams(request.search))
      const read = reader.read({ value, hasEscapes: request.search.includes('%') })
      for (const name of read.unknown) request.warn(name)
      return handler(request, requireFields(read))
    },
  }
}

/** Takes a text that is no JSON, UTF-8. */
export function routeWithText({ contentType, bodyLimit, handler, ...facts }: RouteWithText): Route {
  return {
    ...facts,
    query: null,
    body: { contentType, schema: z.string(), limit: bodyLimit, takesNothing: false },
    handle: (request, { value }) => handler(request, String(value)),
  }
}

/** Field problems refuse the request: 422 with all of them. */
export function route<Fields>(definition: RouteWithBody<Fields, Fields>): Route {
  return lenientRoute<Fields>({
    ...definition,
    handler: async (request, read) => definition.handler(request, requireFields(read)),
  })
}

function requireFields<Fields>({ fields, problems }: ReadFields<Fields>): Fields {
  if (fields !== null) return fields
  throw new ServiceError('invalid_request', problems.map(describeProblem).join('; '))
}

/** The handler judges the problems itself. Binds schema and handler, so that the table needs no types of its routes. */
export function lenientRoute<Given>(definition: RouteWithBody<Given, ReadFields<Given>>): Route {
  const { body: schema, bodyLimit = null, handler, ...facts } = definition
  const reader = createFieldReader(schema)
  return {
    ...facts,
    query: null,
    body: { contentType: 'application/json', schema, limit: bodyLimit, takesNothing: reader.takesNothing },
    handle(request, document) {
      const read = reader.read(document)
      for (const name of read.unknown) request.warn(name)
      return handler(request, read)
    },
  }
}

/** The body of every success but the send result (http/README.md "Conventions"). */
export function success(status: number, data: object): Answer {
  return { status, body: { success: true, data } }
}

export function dataSchema<Data extends z.ZodType>(data: Data) {
  return z.object({ success: z.literal(true), data })
}

/** A page of a list; `next` is the cursor of the page after it, or null. */
export function successList(entries: readonly object[], next: string | null): Answer {
  return { status: OK, body: { success: true, data: entries, has_more: next !== null, next_cursor: next } }
}

export function listSchema<Entry extends z.ZodType>(entry: Entry) {
  return z.object({
    success: z.literal(true),
    data: z.array(entry),
    has_more: z.boolean(),
    next_cursor: z.string().nullable(),
  })
}

const OK = 200
