/**
 * What the routes of `/dev` share: their shape, reading of query values and bodies, answers. Mistakes of the caller are
 * thrown as ServiceError and become the service's envelope.
 */
import { SECOND } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import type { Context } from 'koa'

export type DevHandler = (context: Context, parameters: Record<string, string>) => Promise<void> | void

/** By method and path: `GET /dev/inbox/:id`; a segment with a colon takes any text. */
export type DevRoutes = Record<string, DevHandler>

const DEFAULT_LIMIT = 50
const MOST_LIMIT = 100
/** sandbox/README.md "Routes under /dev": an answer waits at most this long. */
const MOST_WAIT = 60 * SECOND
const MOST_JSON_BYTES = 256 * 1024
const MOST_TIMES = 1_000_000

/** A query value, the last one when it is given several times; null when it is not there or empty. */
export function queryText(context: Context, name: string): string | null {
  const value = context.query[name]
  const text = Array.isArray(value) ? value.at(-1) : value
  return text === undefined || text === '' ? null : text
}

export function queryLimit(context: Context): number {
  const text = queryText(context, 'limit')
  const limit = Number(text ?? DEFAULT_LIMIT)
  if (Number.isInteger(limit) && limit >= 1 && limit <= MOST_LIMIT) return limit
  throw refusal(`limit: must be a whole number from 1 to ${MOST_LIMIT}`)
}

/** `wait=10s` in milliseconds, 60 s at most; 0 when it is not asked for. */
export function queryWait(context: Context): number {
  const text = queryText(context, 'wait')
  if (text === null) return 0
  // Up to three digits and an `s`.
  const seconds = /^(\d{1,3})s$/.exec(text)?.[1]
  if (seconds === undefined) throw refusal('wait: must be a time such as 10s')
  return Math.min(Number(seconds) * SECOND, MOST_WAIT)
}

/** Throws `payload_too_large` as soon as the body is longer; what follows is not read. */
export async function readBody(context: Context, mostBytes: number): Promise<Buffer> {
  const { req: request, res: response } = context
  const tooLarge = new ServiceError('payload_too_large', `at most ${mostBytes} bytes`)
  if (Number(request.headers['content-length'] ?? 0) > mostBytes) throw tooLarge
  if (request.headers.expect !== undefined) response.writeContinue()
  const chunks: Buffer[] = []
  let size = 0
  // Leaving the loop early must not destroy the socket: the refusal still has to be sent.
  for await (const chunk of request.iterator({ destroyOnReturn: false })) {
    const bytes = Buffer.from(chunk)
    size += bytes.length
    if (size > mostBytes) throw tooLarge
    chunks.push(bytes)
  }
  return Buffer.concat(chunks)
}

/** Throws `invalid_request`, with status 400, when the body is not JSON. */
export async function readJsonBody(context: Context): Promise<unknown> {
  const bytes = await readBody(context, MOST_JSON_BYTES)
  try {
    return JSON.parse(bytes.toString('utf8'))
  } catch (cause) {
    throw new ServiceError('invalid_request', `the body is not JSON: ${errorText(cause)}`, { status: 400, cause })
  }
}

export async function readJsonObject(context: Context): Promise<Record<string, unknown>> {
  const document = await readJsonBody(context)
  if (typeof document !== 'object' || document === null || Array.isArray(document)) {
    throw refusal('the body must be an object')
  }
  return { ...document }
}

/** How often something holds; null: for ever. A mistake goes to `problems`. */
export function readTimes(value: unknown, problems: string[]): number | null {
  if (value === null) return null
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MOST_TIMES) return value
  problems.push(`times: must be a whole number from 1 to ${MOST_TIMES}`)
  return null
}

export function sendData(context: Context, data: unknown): void {
  sendJson(context, { success: true, data })
}

/** A list without further pages: what is kept is bounded. */
export function sendList(context: Context, data: unknown[]): void {
  sendJson(context, { success: true, data, has_more: false, next_cursor: null })
}

function sendJson(context: Context, document: object): void {
  context.status = 200
  context.type = 'application/json; charset=utf-8'
  context.body = JSON.stringify(document)
}

export function refusal(problem: string): ServiceError {
  return new ServiceError('invalid_request', problem)
}

export function notFound(what: string): ServiceError {
  return new ServiceError('not_found', what)
}
