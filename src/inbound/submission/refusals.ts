/** What acceptance refuses, as SMTP replies (inbound/README.md "Submission", RFC 3463). */
import type { ServiceError, ServiceErrorCode } from '../../base/errors.ts'
import { smtpRefusal, temporaryFailure, type SmtpRefusal } from '../smtp-refusal.ts'

type OurFault = 'unavailable' | 'internal_error'

const REPLIES: Readonly<Record<Exclude<ServiceErrorCode, OurFault>, readonly [code: number, enhanced: string]>> = {
  invalid_recipient: [553, '5.1.3'],
  unauthorized: [535, '5.7.8'],
  domain_not_verified: [550, '5.7.1'],
  forbidden: [550, '5.7.1'],
  ip_not_warmed: [451, '4.7.0'],
  rate_limited: [451, '4.7.1'],
  attachment_too_large: [552, '5.3.4'],
  payload_too_large: [552, '5.3.4'],
  invalid_request: [554, '5.6.0'],
  // An idempotency key that stands for another message.
  conflict: [554, '5.6.0'],
  not_found: [554, '5.6.0'],
  method_not_allowed: [554, '5.6.0'],
}

export function refusalOf(error: ServiceError): SmtpRefusal {
  const { code, details } = error
  if (code === 'unavailable' || code === 'internal_error') return temporaryFailure(error)
  const [replyCode, enhancedCode] = REPLIES[code]
  return smtpRefusal(replyCode, `${enhancedCode} ${code}: ${details}`)
}
