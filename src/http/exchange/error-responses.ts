/**
 * The one place where an error becomes an answer: code -> status, message and envelope (http/README.md "Errors").
 *
 * Never throws. An error of the store's engine means that the service is unavailable; what else is no ServiceError is a
 * defect: its answer holds the request id alone, the log has the rest.
 */
import { errorCode, ServiceError, type ServiceErrorCode } from '../../base/errors.ts'

/** http/README.md "Errors": at most this many characters of `details`. */
const MOST_DETAILS_CHARACTERS = 2_000

interface ErrorRule {
  status: number
  /** One fixed sentence per code. */
  message: string
  /** Sent unless the error brings its own. */
  headers?: Record<string, string>
}

export const ERROR_RULES: Record<ServiceErrorCode, ErrorRule> = {
  invalid_recipient: { status: 422, message: 'The recipient address is not valid.' },
  unauthorized: { status: 401, message: 'The API key is invalid.', headers: { 'WWW-Authenticate': 'Bearer' } },
  domain_not_verified: { status: 403, message: 'The sending domain is not verified.' },
  // An hour: allowances are given by the hour. Who knows better says so with the error.
  ip_not_warmed: { status: 409, message: 'IP warmup is not complete.', headers: { 'Retry-After': '3600' } },
  rate_limited: { status: 429, message: 'The sending rate is exceeded.', headers: { 'Retry-After': '1' } },
  attachment_too_large: { status: 413, message: 'An attachment exceeds the 10MB limit.' },
  invalid_request: { status: 422, message: 'The request is not valid.' },
  forbidden: { status: 403, message: 'The API key does not permit this.' },
  not_found: { status: 404, message: 'Not found.' },
  method_not_allowed: { status: 405, message: 'This path does not take this method.' },
  conflict: { status: 409, message: 'The request conflicts with the current state.' },
  payload_too_large: { status: 413, message: 'The request body is too large.' },
  unavailable: { status: 503, message: 'The service is unavailable now.', headers: { 'Retry-After': '5' } },
  internal_error: { status: 500, message: 'Internal error.' },
}

interface ErrorAnswer {
  code: ServiceErrorCode
  status: number
  headers: Record<string, string>
  /** The envelope as JSON. */
  body: string
}

export function errorAnswer(thrown: unknown, requestId: string): ErrorAnswer {
  const error = serviceErrorOf(thrown, requestId)
  const rule = ERROR_RULES[error.code]
  return {
    code: error.code,
    status: error.status ?? rule.status,
    headers: { ...rule.headers, ...error.headers },
    body: JSON.stringify({ success: false, error: errorBody(error.code, error.details) }),
  }
}

function serviceErrorOf(thrown: unknown, requestId: string): ServiceError {
  if (thrown instanceof ServiceError) return thrown
  if (isStoreFailure(thrown)) return new ServiceError('unavailable', 'the store did not answer')
  return new ServiceError('internal_error', `request ${requestId}`)
}

/** The disk is full, slow or broken: the codes of the engine (`store.ts`). */
function isStoreFailure(thrown: unknown): boolean {
  return errorCode(thrown).startsWith('SQLITE_')
}

/** What stands under `error` in the envelope, and with each refused recipient of a batch. */
export function errorBody(code: ServiceErrorCode, details: string) {
  // A cut may fall between the halves of a pair: what is left of it becomes U+FFFD.
  return { code, message: ERROR_RULES[code].message, details: details.slice(0, MOST_DETAILS_CHARACTERS).toWellFormed() }
}
