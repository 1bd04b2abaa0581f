/**
 * What goes between the dispatcher and a delivery thread: plain data, in batches, both ways.
 *
 * The thread reports what happened on the wire; what follows from it is decided by `judge-reply.ts` in the main thread.
 */
import type { ConnectionFacts } from '../mail/delivery-outcome.ts'
import type { SmtpReply } from '../mail/smtp-reply.ts'

/** One egress IP and one route: the unit of connections and of back-off. */
export interface PathPlan {
  key: string
  /** Of the hosts. */
  port: number
  /** The local address that sockets are bound to. */
  source: string
  /** The EHLO name of the egress IP. */
  hostname: string
  /** At most so many sessions at once. */
  connections: number
  messagesPerConnection: number
  idleMilliseconds: number
  requiresTls: boolean
}

export interface MailHost {
  name: string
  addresses: string[]
}

/** The hosts of a recipient domain; rows with the same `key` may share a connection. */
export interface Site {
  key: string
  hosts: MailHost[]
}

/** One message on its way through a thread. Content and variables stay in the store until its turn. */
export interface DispatchedRow {
  key: number
  messageId: string
  contentId: number
  /** The sending domain: whose key signs. */
  domain: string
  /** Host name of the envelope sender's domain. */
  returnPath: string
  expiresAt: number
  /** It stays on this host. */
  isCaptured: boolean
}

export interface PathBatch {
  path: PathPlan
  site: Site
  rows: DispatchedRow[]
}

/** How a try ended. */
export type TryEnd =
  | { kind: 'accepted'; reply: SmtpReply } // 2xx to the final dot
  | { kind: 'refused'; stage: 'mail' | 'rcpt' | 'data' | 'dot'; reply: SmtpReply } // 4xx or 5xx, at this stage
  | { kind: 'lost'; stage: 'mail' | 'data'; reason: string } // the connection ended after MAIL and before the dot
  | { kind: 'unanswered'; reason: string } // the dot went out and no usable reply came back
  | { kind: 'unacceptable'; cause: 'too_large' | 'not_ascii'; reason: string } // by what the host announced; not sent
  | PathFailure
  | { kind: 'expired' } // its lifetime ended before the first command
  | { kind: 'returned'; why: 'stopping' | 'source-gone' | 'not-renderable'; reason: string } // no command was sent

/** No MAIL was sent: every host failed before that point. */
export interface PathFailure {
  kind: 'path-failed'
  stage: 'connect' | 'banner' | 'ehlo' | 'starttls'
  /** Enhanced code, d.d.d. */
  code: string
  reason: string
  /** False: another message's try had just failed on this path, so none was made for this one. */
  wasTried: boolean
}

export interface TryResult {
  key: number
  /** By the dispatcher's clock. */
  startedAt: number
  durationMilliseconds: number
  facts: ConnectionFacts
  end: TryEnd
  /** The dialogue; null: not kept, or there was none. */
  transcript: string | null
}

export const NO_CONNECTION: ConnectionFacts = { host: null, localAddress: null, remoteAddress: null, tls: null }

export type ToThread =
  | { kind: 'dispatch'; clockOffset: number; batches: PathBatch[] }
  | { kind: 'tick'; id: number }
  | { kind: 'drain' } // start nothing new; answer with `drained` when all that runs has ended
  | { kind: 'abort' } // reset what has not sent its dot; the rest still waits for its reply
  | { kind: 'end' } // close everything and exit

export type FromThread =
  | { kind: 'results'; results: TryResult[] }
  | { kind: 'tick'; id: number }
  | { kind: 'drained' }
