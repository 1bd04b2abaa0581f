/**
 * A route: one entry of the table from which the router, validation and types come (and the OpenAPI document later).
 */
import type { z } from 'zod'
import { ServiceError } from '../base/errors.ts'
import type { ServiceErrorCode } from '../base/errors.ts'
import { createFieldReader, describeProblem } from './read-fields.ts'
import type { ReadFields } from './read-fields.ts'
import type { BodyLimit } from './body-reader.ts'
import type { JsonDocument } from './read-json.ts'
import type { Scope } from '../senders/api-key.ts'
import type { Principal } from './principal.ts'

/** What a handler knows of a request beside its fields. */
export interface ApiRequest {
  requestId: string
  principal: Principal
  /** Of the path, percent-decoded. */
  params: Record<string, string>
  /** What follows the question mark, as it came. */
  search: string
  /** Adds a text to X-Service-Warnings. */
  warn(text: string): void
}

export interface Answer {
  status: number
  /** Sent as JSON; a text is sent as it is. */
  body: object | string
}

interface RouteFacts {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Below the prefixes; `:name` is a parameter. */
  path: string
  /** null: public, no key needed. */
  scope: Scope | null
  /** Errors beside those that every route can answer with. */
  errors: ServiceErrorCode[]
}

export interface RouteWithoutBody extends RouteFacts {
  body: null
  handler(request: ApiRequest): Promise<Answer>
}

interface RouteWithQuery<Fields> extends RouteFacts {
  /** Parameters behind the question mark: texts all of them. */
  query: z.ZodType<Fields>
  handler(request: ApiRequest, parameters: Fields): Promise<Answer>
}

interface RouteWithBody<Given, Fields> extends RouteFacts {
  body: z.ZodType<Given>
  /** Left out: the limit of most routes. */
  bodyLimit?: BodyLimit
  handler(request: ApiRequest, fields: Fields): Promise<Answer>
}

/** What a route does with a body: null stands for "takes none". */
export interface RouteBody {
  schema: z.ZodType
  /** null: the limit of most routes. */
  limit: BodyLimit | null
  /** True when no body at all counts as `{}`. */
  takesNothing: boolean
}

export interface Route extends RouteFacts {
  body: RouteBody | null
  /** `document` is meaningless where `body` is null. */
  handle(request: ApiRequest, document: JsonDocument): Promise<Answer>
}

/** Stands for a body that is not there. */
export const EMPTY_DOCUMENT: JsonDocument = { value: Object.freeze({}), hasEscapes: false }

export function routeWithoutBody({ method, path, scope, errors, handler }: RouteWithoutBody): Route {
  return { method, path, scope, errors, body: null, handle: (request) => handler(request) }
}

/** Takes no body. Of a parameter given twice the last one counts, as of a repeated key in JSON. */
export function routeWithQuery<Parameters>(definition: RouteWithQuery<Parameters>): Route {
  const { method, path, scope, errors, query: schema, handler } = definition
  const reader = createFieldReader(schema)
  return {
    method, path, scope, errors,
    body: null,
    async handle(request) {
      const value = Object.fromEntries(new URLSearchParams(request.search))
      const read = reader.read({ value, hasEscapes: request.search.includes('%') })
      for (const name of read.unknown) request.warn(name)
      return handler(request, requireFields(read))
    },
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
  const { method, path, scope, errors, body: schema, bodyLimit = null, handler } = definition
  const reader = createFieldReader(schema)
  return {
    method, path, scope, errors,
    body: { schema, limit: bodyLimit, takesNothing: reader.takesNothing },
    async handle(request, document) {
      const read = reader.read(document)
      for (const name of read.unknown) request.warn(name)
      return handler(request, read)
    },
  }
}

/** The body of every success but the send result (contract.md 1). */
export function success(status: number, data: object): Answer {
  return { status, body: { success: true, data } }
}

/** A page of a list; `next` is the cursor of the page after it, or null. */
export function successList(entries: readonly object[], next: string | null): Answer {
  return { status: OK, body: { success: true, data: entries, has_more: next !== null, next_cursor: next } }
}

const OK = 200
