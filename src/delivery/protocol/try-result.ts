/**
 * What goes between the dispatcher and a delivery thread: plain data, in batches, both ways. The thread reports what
 * happened on the wire; what follows from it is decided by `judge-reply.ts` in the main thread.
 */
import type { Rate } from '../../config/settings/field-types.ts'
import type { ConnectionNote } from '../../egress/shaping/shaping.ts'
import type { ConnectionFacts } from '../../mail/reply/delivery-outcome.ts'
import type { SmtpReply } from '../../mail/reply/smtp-reply.ts'
import type { ThreadPlace } from '../../mail/whereabouts.ts'
import type { HostTls, TlsPolicy } from './host-tls.ts'

/** Changed by `limit`. */
export interface PathLimits {
  /** At most so many sessions at once. */
  connections: number
  messagesPerConnection: number
  /** Their messages go one after the other: flights went wrong there. */
  carefulHosts: readonly string[]
}

/** One egress IP and one route: the unit of connections and of back-off. */
export interface PathPlan extends PathLimits {
  key: string
  /** Of the hosts. */
  port: number
  /** The local address that sockets are bound to. */
  source: string
  /** The EHLO name of the egress IP. */
  hostname: string
  idleMilliseconds: number
  /** Messages of a connection that may be under way at once, where the host can. */
  inFlight: number
  /** New connections; null: as many as it likes. */
  connectionRate: Rate | null
}

export type MailHost = { name: string; addresses: string[]; tls: HostTls }

/**
 * The hosts of a recipient domain, in the order in which they are asked. Rows with the same `key` may share a
 * connection: it stands for the host names and for the TLS policy of the domain (delivery/README.md "The SMTP session",
 * network/README.md "MTA-STS").
 */
export interface Site {
  key: string
  hosts: MailHost[]
}

/** One message on its way through a thread. Content and variables stay in the store until its turn. */
export interface DispatchedRow {
  /** What it is known by on both sides. */
  claim: number
  /** Where its content is read. */
  key: number
  messageId: string
  contentId: number
  /** The sending domain: whose key signs. */
  domain: string
  /** Host name of the envelope sender's domain. */
  returnPath: string
  /** In whose name connections are counted in TLS reports. */
  recipientDomain: string
  expiresAt: number
  /** It stays on this host. */
  isCaptured: boolean
  /** Transactional: it goes before all that are not. */
  isUrgent: boolean
  /** A try of it had no answer to its final dot. */
  wasInDoubt: boolean
}

export type PathBatch = { path: PathPlan; site: Site; rows: DispatchedRow[] }
export type TryEnd =
  | { kind: 'accepted'; reply: SmtpReply } // 2xx to the final dot
  | { kind: 'refused'; stage: 'mail' | 'rcpt' | 'data' | 'dot'; reply: SmtpReply } // 4xx or 5xx, at this stage
  | { kind: 'lost'; stage: 'mail' | 'rcpt' | 'data'; reason: string } // the connection ended before the dot
  | { kind: 'unanswered'; reason: string } // the dot went out and no usable reply came back
  | { kind: 'unacceptable'; cause: 'too_large' | 'not_ascii'; reason: string } // by what the host announced; not sent
  | PathFailure
  | { kind: 'returned'; why: ReturnCause; reason: string } // nothing was concluded, and no dot was sent

/** Why a row comes back without a result. */
export type ReturnCause =
  | 'stopping' // the server stops
  | 'source-gone' // this machine does not have the egress IP any more
  | 'no-socket' // this machine has no socket or port free for a connection now
  | 'not-renderable' // it could not be rendered or signed
  | 'store-away' // what it is made of cannot be read now
  | 'stale' // its claim held the row no more when the dot mark was asked for: it waits, or a newer claim has it
  | 'unmarked' // the dot mark was not confirmed in time
  | 'too-late' // its lifetime ended before the first command: the store ends it

/** No MAIL was sent: every host failed before that point. */
export interface PathFailure {
  kind: 'path-failed'
  stage: 'connect' | 'banner' | 'ehlo' | 'starttls'
  /** Enhanced code, d.d.d. */
  code: string
  reason: string
  /** The host that was tried last; null: there was none. */
  host: string | null
  /** What it said; null: nothing, or no proper reply. */
  reply: SmtpReply | null
}

export interface TryResult {
  claim: number
  /** By the dispatcher's clock. */
  startedAt: number
  durationMilliseconds: number
  facts: ConnectionFacts
  end: TryEnd
  /** RCPT was written in this try: its allowance is spent. */
  wasRcptSent: boolean
  /** The dialogue; null: not kept, or there was none. */
  transcript: string | null
}

/** What one connection says about TLS, for the reports of RFC 8460 and for the memory of plain fallbacks. */
export interface TlsResultNote {
  policy: TlsPolicy
  /** `success`, or a result type of RFC 8460 §4.3. */
  result: string
  /** What went wrong, in words; null: nothing. */
  reason: string | null
  /** Opportunistic TLS failed here just before: this connection goes on in plain text (delivery/README.md "TLS"). */
  isPlainFallback: boolean
}

export interface ThreadConnectionNote {
  pathKey: string
  note: ConnectionNote
  /** The MX host, and its address that was connected to; null: it did not come so far. */
  host: string | null
  address: string | null
  /** The recipient domain of the row it was opened for. */
  domain: string
  /** Null where the note says nothing of TLS. */
  tls: TlsResultNote | null
}

export const NO_CONNECTION: ConnectionFacts = { host: null, localAddress: null, remoteAddress: null, tls: null }

export type ToThread =
  | { kind: 'dispatch'; clockOffset: number; batches: PathBatch[] }
  | { kind: 'marked'; clockOffset: number; id: number; stale: number[] } // committed, but for claims that are `stale`
  | ({ kind: 'limit'; pathKey: string } & PathLimits) // between two messages
  | { kind: 'tick'; id: number }
  | { kind: 'claims'; id: number } // which rows it has
  | { kind: 'where'; id: number; claim: number } // where it has this row
  | { kind: 'drain' } // start nothing new; answer with `drained` when all that runs has ended
  | { kind: 'abort' } // reset what has not sent its dot; the rest still waits for its reply
  | { kind: 'end' } // close everything and exit

/** What happened in a thread in one turn of its event loop, to be heeded in this order. */
export interface ThreadTurn {
  /** First: what is concluded from the results may ask how the path is. */
  notes: ThreadConnectionNote[]
  results: TryResult[]
  /**
   * Their final dots wait for the answer. Last: no mark is committed before the outcome of the message that went over
   * its connection before. `null`: none is asked for.
   */
  mark: { id: number; claims: number[] } | null
}

export type FromThread =
  | { kind: 'turn'; turn: ThreadTurn }
  | { kind: 'tick'; id: number }
  | { kind: 'claims'; id: number; claims: number[] } // behind the results of all others that it was given
  | { kind: 'where'; id: number; place: ThreadPlace | null } // null: nowhere; behind the results that came before
  | { kind: 'drained' }
