/**
 * The second fence against secrets in the log: fields with such names are not written, at whatever depth, and of an
 * error only what says what went wrong. Errors of libraries carry requests, headers and bodies with them.
 *
 * Costs a look at each field name; only a line that has something to hide, or to look into, is copied.
 */
import { errorCode } from './errors.ts'

const SECRET_NAMES = new Set([
  'key',
  'secret',
  'secrets',
  'password',
  'token',
  'authorization',
  'Authorization',
  'cookie',
  'private_key',
  'privateKey',
  'master_key',
  'masterKey',
  'apiKey',
  'sealedSecret',
  'body',
  'html',
  'text',
  'variables',
])
const CENSORED = '[redacted]'
/** What lies deeper is no field of a log line. */
const DEEPEST = 4

export function redactFields(fields: Record<string, unknown>): Record<string, unknown> {
  for (const name in fields) {
    if (SECRET_NAMES.has(name) || isMap(fields[name])) return redactedCopy(fields, 1)
  }
  return fields
}

function redactedCopy(fields: Record<string, unknown>, depth: number): Record<string, unknown> {
  const copy: Record<string, unknown> = {}
  for (const [name, value] of Object.entries(fields)) {
    if (SECRET_NAMES.has(name)) copy[name] = CENSORED
    else copy[name] = redactedValue(value, depth)
  }
  return copy
}

function redactedValue(value: unknown, depth: number): unknown {
  if (Array.isArray(value)) return value.map((item) => redactedValue(item, depth))
  if (!isMap(value)) return value
  return depth < DEEPEST ? redactedCopy(value, depth + 1) : CENSORED
}

/** An error has its own serializer; dates and the like write themselves. */
function isMap(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  return Array.isArray(value) || prototype === Object.prototype || prototype === null
}

/** For the field `err`. */
export function errorFields(thrown: unknown, depth = 1): unknown {
  if (!(thrown instanceof Error)) return typeof thrown === 'object' ? CENSORED : thrown
  const code = errorCode(thrown)
  const hasCause = thrown.cause !== undefined && depth < DEEPEST
  const cause = hasCause ? { cause: errorFields(thrown.cause, depth + 1) } : {}
  return { type: thrown.name, message: thrown.message, ...(code === '' ? {} : { code }), ...cause, stack: thrown.stack }
}
