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
  /** Adds a text to X-Service-Warnings. */
  warn(text: string): void
}

export interface Answer {
  status: number
  body: object
}

interface RouteFacts {
  method: 'GET' | 'POST'
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

/** Field problems refuse the request: 422 with all of them. */
export function route<Fields>(definition: RouteWithBody<Fields, Fields>): Route {
  return lenientRoute<Fields>({
    ...definition,
    async handler(request, { fields, problems }) {
      if (fields !== null) return definition.handler(request, fields)
      throw new ServiceError('invalid_request', problems.map(describeProblem).join('; '))
    },
  })
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
