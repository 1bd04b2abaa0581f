/**
 * A reply that refuses: thrown by what judges a login, a sender, a recipient or a message, and sent as it is. Whatever
 * else is thrown there is a fault of ours and is answered with 451, so that the client keeps the mail.
 */
import { errorCode, type ServiceError, type ServiceErrorCode } from '../base/errors.ts'

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

export interface SmtpRefusal extends Error {
  /** The field smtp-server takes the reply code from. */
  responseCode: number
}

// Everything a reply should not hold: RFC 5321 §4.2 has printable ASCII alone.
const UNPRINTABLE = /[^ -~]+/g
/** Far below the limit of a reply line, RFC 5321 §4.5.3.1.5, which holds for each line of a longer one. */
const MOST_TEXT_CHARACTERS = 400

/** `text` opens with its enhanced code (RFC 3463). */
export function smtpRefusal(responseCode: number, text: string): SmtpRefusal {
  const plain = text.replace(UNPRINTABLE, '?')
  const cut = plain.length > MOST_TEXT_CHARACTERS ? `${plain.slice(0, MOST_TEXT_CHARACTERS)}...` : plain
  return Object.assign(new Error(cut), { responseCode })
}

export function isSmtpRefusal(thrown: unknown): thrown is SmtpRefusal {
  return thrown instanceof Error && 'responseCode' in thrown
}

/** RFC 3463 §3.4: X.3.1 is a full disk, X.3.0 any other trouble of this system. */
export function temporaryFailure(thrown: unknown): SmtpRefusal {
  const cause = thrown instanceof Error ? thrown.cause : undefined
  const isDiskFull = [thrown, cause].some((error) => ['SQLITE_FULL', 'ENOSPC'].includes(errorCode(error)))
  return isDiskFull ? smtpRefusal(452, '4.3.1 the disk is full') : smtpRefusal(451, '4.3.0 try again later')
}

type OurFault = 'unavailable' | 'internal_error'

/** What acceptance refuses, as a reply (inbound/README.md "Submission", RFC 3463). */
export function refusalOf(error: ServiceError): SmtpRefusal {
  const { code, details } = error
  if (code === 'unavailable' || code === 'internal_error') return temporaryFailure(error)
  const [replyCode, enhancedCode] = REPLIES[code]
  return smtpRefusal(replyCode, `${enhancedCode} ${code}: ${details}`)
}
