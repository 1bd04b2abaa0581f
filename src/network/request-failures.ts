/**
 * Why a request to a URL that others chose failed, in words that customers may read: error texts of the system hold
 * addresses, so only what is said here goes out (network/README.md "Addresses never connected to"). Pure.
 */
import { errors } from 'undici'
import { errorCode } from '../base/errors.ts'
import { BodyTooLong, TimeIsUp } from './one-exchange.ts'

export const REFUSED_ADDRESS = 'the address is private, local or reserved'

/** Our own refusal, as opposed to a failure of the network. */
export class RefusedAddress extends Error {
  constructor() {
    super(REFUSED_ADDRESS)
    this.name = 'RefusedAddress'
  }
}

/** Codes of a certificate that can not be believed (RFC 8460 §4.3.2.2, `sts-webpki-invalid`). */
const CERTIFICATE_CODES: ReadonlySet<string> = new Set([
  'CERT_HAS_EXPIRED',
  'CERT_NOT_YET_VALID',
  'CERT_SIGNATURE_FAILURE',
  'CERT_REVOKED',
  'CERT_UNTRUSTED',
  'CERT_REJECTED',
  'CERT_CHAIN_TOO_LONG',
  'INVALID_CA',
  'INVALID_PURPOSE',
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'ERR_TLS_CERT_ALTNAME_INVALID',
  'HOSTNAME_MISMATCH',
])

const REASONS: Record<string, string> = {
  ENOTFOUND: 'the host name does not resolve',
  EAI_AGAIN: 'the host name does not resolve at the moment',
  ECONNREFUSED: 'the connection was refused',
  ECONNRESET: 'the connection was reset',
  EPIPE: 'the connection was reset',
  ETIMEDOUT: 'the connection timed out',
  EHOSTUNREACH: 'the host can not be reached',
  ENETUNREACH: 'the host can not be reached',
  UND_ERR_CONNECT_TIMEOUT: 'the connection timed out',
  UND_ERR_SOCKET: 'the connection ended before the answer',
  UND_ERR_HEADERS_OVERFLOW: 'the headers of the answer are too large',
  CERT_HAS_EXPIRED: 'the certificate has expired',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'the certificate is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'the certificate is not trusted',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'the certificate is not trusted',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'the certificate is not trusted',
  ERR_TLS_CERT_ALTNAME_INVALID: 'the certificate is for another host name',
}

/** A phrase that names no address. */
export function reasonOf(thrown: unknown): string {
  if (thrown instanceof RefusedAddress || thrown instanceof TimeIsUp || thrown instanceof BodyTooLong) {
    return thrown.message
  }
  const code = errorCode(thrown)
  if (thrown instanceof errors.HTTPParserError) return 'the answer is not HTTP'
  if (code.startsWith('ERR_SSL_') || code === 'EPROTO') return 'TLS failed'
  return REASONS[code] ?? (code === '' ? 'the request failed' : `the request failed (${code})`)
}

/** The server is there, and its certificate can not be believed. */
export function isCertificateProblem(thrown: unknown): boolean {
  return CERTIFICATE_CODES.has(errorCode(thrown))
}
