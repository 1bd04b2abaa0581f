/**
 * The errors that cross the parts of Sternpost: base/README.md "Errors" says who turns which of them into an answer.
 */

/** The six codes of the specification, then the decided extensions. */
export const SERVICE_ERROR_CODES = [
  'invalid_recipient',
  'unauthorized',
  'domain_not_verified',
  'ip_not_warmed',
  'rate_limited',
  'attachment_too_large',
  'invalid_request',
  'forbidden',
  'not_found',
  'method_not_allowed',
  'conflict',
  'payload_too_large',
  'unavailable',
  'internal_error',
] as const
export type ServiceErrorCode = (typeof SERVICE_ERROR_CODES)[number]

interface ServiceErrorOptions {
  /** HTTP status when it differs from the code's usual one, e.g. 400 or 415 for `invalid_request`. */
  status?: number | undefined
  /** Response headers that go with the error, e.g. `Retry-After`. */
  headers?: Record<string, string>
  cause?: unknown
}

/** `details` says what is wrong with which field; it never holds a secret, a driver message or a stack trace. */
export class ServiceError extends Error {
  readonly code: ServiceErrorCode
  readonly details: string
  readonly status: number | undefined
  readonly headers: Record<string, string>

  constructor(code: ServiceErrorCode, details = '', options: ServiceErrorOptions = {}) {
    super(details === '' ? code : `${code}: ${details}`, { cause: options.cause })
    this.name = 'ServiceError'
    this.code = code
    this.details = details
    this.status = options.status
    this.headers = options.headers ?? {}
  }
}

/** One mistake in a configuration file; line and column start at 1. */
export interface Mistake {
  file: string
  line: number
  column: number
  /** Where in the document, e.g. `pools.default.ips[1].address`. */
  path: string
  severity: 'error' | 'warning'
  message: string
  /** What to write instead, or null. */
  suggestion: string | null
}

export class ConfigurationError extends Error {
  readonly mistakes: readonly Mistake[]

  constructor(mistakes: readonly Mistake[]) {
    super(mistakes.map((mistake) => `${mistake.file}:${mistake.line}:${mistake.column}: ${mistake.message}`).join('\n'))
    this.name = 'ConfigurationError'
    this.mistakes = mistakes
  }
}

/** Exit codes of the commands and of `serve` (commands/README.md "Exit codes", after sysexits.h). */
export const EXIT = {
  done: 0,
  failed: 1,
  usage: 64,
  unreachable: 69,
  internal: 70,
  disk: 74,
  tryAgain: 75,
  notAllowed: 77,
  configuration: 78,
  interrupted: 130,
} as const

/** Ends the process: `message` is one clear line for the person who started it. */
export class ProcessExit extends Error {
  readonly exitCode: number

  constructor(exitCode: number, message: string, options: { cause?: unknown } = {}) {
    super(message, options)
    this.name = 'ProcessExit'
    this.exitCode = exitCode
  }
}

/** A fatal report of a server that still works, and has to start again: what is under way may end first. */
export class RestartNeeded extends Error {
  override readonly name = 'RestartNeeded'
}

/** The end of an exhaustive switch: the compiler proves that it is never reached. */
export function unreachable(value: never): never {
  throw new Error(`unexpected value: ${JSON.stringify(value)}`)
}

export function errorText(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown)
}

/** The `code` of a system, SQLite or DNS error, or an empty string. */
export function errorCode(thrown: unknown): string {
  if (typeof thrown !== 'object' || thrown === null || !('code' in thrown)) return ''
  return typeof thrown.code === 'string' ? thrown.code : ''
}
