/** What the rest of the program knows of an egress IP, and how it asks for one. Plain data. */
import type { Pool } from '../../config/settings/pool-settings.ts'
import type { Stream } from '../../mail/message.ts'
import type { WaitingFor } from '../../store/records/queue-records.ts'
import type { StoredIpState } from '../../store/records/warmup-records.ts'

/** `disabled`: by `enabled: false`, or because this machine cannot bind its source; never stored. */
export type IpState = StoredIpState | 'disabled'

/** What follows from state and pool (egress/README.md "States of an IP"). */
export type Sends =
  | 'all' // warmed, or cold in a pool with require_warmup: false
  | 'allowance' // warming: first attempts take warmup allowance
  | 'retries' // paused: only messages that were tried from it before
  | 'nothing' // cold, suspended, disabled

export interface EgressIp {
  address: string
  /** What the socket is bound to: differs from `address` behind 1:1 NAT. */
  source: string
  hostname: string
  /** 0 to 1000; 0: only when no other IP of the pool can send. */
  weight: number
  pool: string
  state: IpState
  sends: Sends
  /** Why it is disabled, paused or suspended, else null. */
  reason: string | null
  /** When the pause or suspension ends; null: it is neither, or it ends when somebody resumes it. */
  until: number | null
  /** Caps on every path while it is new (`new_ip` of warmup.yaml), else null. */
  newIpLimits: { connections: number; messagesPerConnection: number } | null
  /** Overrides of provider limits, by provider id; the smaller number counts. */
  poolLimits: Pool['limits']
}

/** Receivers refuse an IP: its warmup may have to pause. */
export interface BlockNote {
  ip: string
  isp: string
  /** The reply, with the rule when one fired. */
  reason: string
  /** A fired reply rule with `block: true`, which pauses at once; else one reply of the category `ip_block`. */
  isRule: boolean
}

export interface IpRequest {
  pool: string
  messageId: string
  recipientDomain: string
  stream: Stream
  isp: string
  attempts: number
  /** IP of the last attempt; before any attempt that of the last try. */
  lastIp: string | null
  /** null: free choice. 0: `lastIp` when that can send now. A time: waits for `lastIp` until then. */
  keepIpUntil: number | null
  avoidIps: readonly string[]
  /** Those of the receiving hosts that may be used, the preferred one first. */
  families: readonly (4 | 6)[]
}

export type PathState =
  | { kind: 'open' }
  /** `takesRows`: it opens within moments; a message waits there that keeps its IP, or finds no path open. */
  | { kind: 'closed'; until: number | null; waitingFor: WaitingFor; takesRows?: boolean; text: string }

export type IpChoice =
  /** `needsGrant`: one unit of allowance has to be reserved before it goes out. */
  | { kind: 'ip'; ip: EgressIp; needsGrant: boolean }
  /**
   * Until when it makes no sense to ask again; null: nobody knows. `text` is one sentence for `explain`. `keptTo`: it
   * waits for this IP alone, though others may be open. `hasNoIp`: nothing of its pool is claimed before that has one.
   */
  | { kind: 'wait'; until: number | null; waitingFor: WaitingFor; text: string; keptTo?: string; hasNoIp?: true }

export interface Candidate {
  ip: EgressIp
  /** 1 warming, 2 the pool's own, 3 of the overflow pool: that one only when no path of tier 2 is merely busy. */
  tier: 1 | 2 | 3
  /** How many messages may hope for allowance now; Infinity: none is needed. */
  hope: number
  nextAt: number | null
  waitingFor: WaitingFor | null
}

export interface ProjectionRequest {
  pool: string
  /** The request itself named the pool (`ip_pool`). */
  isRequested: boolean
  /** Messages of the request that would leave the host. */
  count: number
  stream: Stream
  /** Milliseconds from `startsAt` on. */
  lifetime: number
  startsAt: number
}

/** The figures behind a refusal (http/README.md "ip_not_warmed"). */
export interface RefusalDetails {
  /** Messages a day that the warming IPs of the pool are allowed today, and how many of them are used. */
  cap: number
  granted: number
  backlog: number
  /** Seconds. */
  retry_after: number
}

export type Projection =
  /** `startsAt`: when the first message of the request can start; null: at once. */
  | { kind: 'ok'; startsAt: number | null }
  | {
      kind: 'refused'
      code: 'ip_not_warmed' | 'unavailable'
      text: string
      details: RefusalDetails
      retryAfterSeconds: number
    }

/** A socket bound to an address of one family cannot reach a host of the other. */
export function familyOf({ source }: Pick<EgressIp, 'source'>): 4 | 6 {
  return source.includes(':') ? 6 : 4
}
