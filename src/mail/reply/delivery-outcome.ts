/**
 * What one try to deliver a message led to, with its SMTP facts (delivery/README.md "Stages", mail/README.md "Three
 * decisions").
 */
import type { SmtpStage } from './smtp-reply.ts'

/** How the customer sees the end of a message (http/README.md "Events"). */
export type BounceType =
  | 'hard' // address or domain is permanently bad
  | 'soft' // a temporary cause lasted, or size or quota
  | 'block' // IP, domain, content or policy refused
  | 'undetermined' // no rule matched
  | 'suppressed' // not sent, the address is on the list

/** Why a message ended without delivery. */
export interface Bounce {
  type: BounceType
  /** Our finer list, `mail/reply/bounce-category.ts`. */
  category: string
  /** Always digit.digit.digit. */
  code: string
  /** The remote reply or a plain sentence; never empty, at most 1,000 characters. */
  description: string
}

/** What is known of the connection a try used; null where it never came so far. */
export interface ConnectionFacts {
  /** The MX host name. */
  host: string | null
  /** Address the socket really had on our side, and the peer's. */
  localAddress: string | null
  remoteAddress: string | null
  /** Null for plain text. */
  tls: TlsFacts | null
}

/** How a connection was encrypted, and what is known of the peer (delivery/README.md "TLS reports"). */
export interface TlsFacts {
  /** Such as `TLSv1.3`. */
  protocol: string
  /** OpenSSL's name of it. */
  cipher: string
  /** SHA-256 of the peer's certificate, hexadecimal in lower case; null: it showed none. */
  fingerprint: string | null
  /** Its certificate is what the policy asks for; under no policy: a chain to a known root, and the host's name. */
  isVerified: boolean
  /** The policy that held: its type, and its id where it has one. */
  policy: string
  /** What the check of the certificate found wrong; null: nothing. */
  problem: string | null
}

/** One try as it is stored: the row of `attempts`, and the log line. */
export interface DeliveryAttempt extends ConnectionFacts {
  at: number
  durationMilliseconds: number
  /** The egress IP that was chosen; null when the DNS already gave the answer. */
  ip: string | null
  result: DeliveryOutcome['kind']
  stage: SmtpStage
  /** The remote reply, or the reason in our words. */
  reply: string
}

export type DeliveryOutcome =
  | { kind: 'delivered' } // the host answered 2xx to the final dot
  | { kind: 'deferred'; retryAt: number } // the host asked us to come back
  | { kind: 'bounced'; bounce: Bounce } // final
  | { kind: 'expired'; bounce: Bounce } // no further attempt fits into the lifetime
  | { kind: 'path-failed'; retryAt: number } // no MAIL FROM was sent: not the message's fault, not counted
  | { kind: 'ambiguous'; retryAt: number } // the connection ended between the final dot and its reply
