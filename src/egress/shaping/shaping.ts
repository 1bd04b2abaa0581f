/**
 * What shaping says of a path (egress IP, route), and what it is told: the interface between `delivery` and the limits,
 * rates, back-off and suspensions of egress/README.md "Shaping" and "Reply rules". Everything is decided from what
 * receivers answered, from the clock and by operators: nothing here waits, and only `start`, `stop`, `tick`, `suspend`
 * and `resume` touch the store. No method throws; those reject when the store does.
 */
import { SECOND } from '../../base/clock.ts'
import type { Tokens } from '../../base/pace.ts'
import type { Rate } from '../../config/settings/field-types.ts'
import type { ProviderLimits } from '../../config/settings/provider-settings.ts'
import type { BounceCategory } from '../../mail/reply/bounce-category.ts'
import type { Stream } from '../../mail/message.ts'
import type { SmtpReply, SmtpStage } from '../../mail/reply/smtp-reply.ts'
import type { BlockNote, EgressIp } from '../ips/egress-ip.ts'

/** A path with the limits that the configuration gives it now: plain facts. `shapedPath` makes one. */
export interface ShapedPath {
  /** `${ip} ${route}`. */
  key: string
  ip: string
  route: string
  /** Id of a block of providers.yaml, or null. */
  provider: string | null
  isp: string
  /** Of the provider, made tighter by the pool's overrides. */
  limits: ProviderLimits
  /** Caps on every path of an IP that is new to the world, else null (egress/README.md "Gates"). */
  newIpLimits: EgressIp['newIpLimits']
}

/** Whose mail. Suspensions of a lane hold for the sending domain, whatever the stream. */
export interface Lane {
  /** The sending domain. */
  domain: string
  stream: Stream
}

export type Gate = OpenGate | ClosedGate

/** A path that is closed for no longer keeps its rows. */
export const SHORT_WAIT = 2 * SECOND
/** So long a path takes nothing for which this machine had no socket or port. */
export const SOCKET_WAIT = 5 * SECOND

export interface OpenGate {
  kind: 'open'
  /** Sessions at once: the smallest of all limits and of the concurrency that was learnt. At least 1. */
  connections: number
  messagesPerConnection: number
  /** Messages to these go one after the other, whatever they offer (delivery/README.md "Flights"). */
  carefulHosts: readonly string[]
  /**
   * Rows of the path that may be under way: 1 while it probes, else Infinity. A row that goes out while this or
   * `mostOfLane` is 1 is a probe: refused as a block it is deferred, never bounced (egress/README.md "Suspension
   * ladder").
   */
  mostUnderWay: number
  /** Rows of this sending domain under way on this route, over all IPs of the pool: 1 while it probes. */
  mostOfLane: number
}

export interface ClosedGate {
  kind: 'closed'
  /** When it opens by time alone, or null: by an event that `onOpen` tells. */
  until: number | null
  waitingFor: 'suspension' | 'rate' | 'connections' | 'sockets'
  /** It opens within moments, by its rate: a row that is claimed already waits on the path. */
  takesRows: boolean
  /** One sentence: why, and until when. Ours: never fed to rules. */
  text: string
  /** Id of the reply rule, or null. */
  rule: string | null
}

/** What a row that came back from a thread says of its path. One for each row that was handed to a thread. */
export type TryNote =
  | { kind: 'delivered' } // 2xx to the dot
  | { kind: 'refused'; reply: SmtpReply; stage: SmtpStage; category: BounceCategory } // 4xx or 5xx to MAIL … dot
  | { kind: 'no-socket'; reason: string } // this machine had none for a connection: nothing of the path
  | { kind: 'neither' } // lost, unanswered, expired, returned; or its connection failed, whose own note tells that

/**
 * What happened to a connection. One that was `opened` ends with exactly one of `ended-well`, `dropped` and `closing`;
 * one that `failed` was never opened.
 */
export type ConnectionNote =
  | { kind: 'opened'; inFlight: number } // banner, EHLO and TLS are done; so many messages may be under way at once
  | { kind: 'careful'; host: string; reason: string } // flights of messages are not for this host
  | { kind: 'ended-well'; delivered: number } // closed by us, or after a 421 to a message; so many were delivered
  | ConnectionFailure
  | { kind: 'dropped'; reason: string } // the host ended it in the dialogue, without a word
  | { kind: 'closing'; reply: SmtpReply } // 421 outside of a message; one to MAIL … dot comes as `refused`

interface ConnectionFailure {
  kind: 'failed'
  stage: 'connect' | 'banner' | 'ehlo' | 'starttls'
  host: string | null
  /** What the host said; null: nothing. */
  reply: SmtpReply | null
  /** In our words. */
  reason: string
  /** TLS was required here, so that its failure is one of the path. */
  wasRequiredTls: boolean
}

export type { Tokens } from '../../base/pace.ts'

export interface Shaping {
  /** Loads what paths are under. */
  start(): Promise<void>
  /** Saves it. */
  stop(): Promise<void>
  /** This node sends from the IP from now on: reads what others have learnt of its paths. */
  takeOver(ip: string): Promise<void>
  /** Another node may send from it soon: stores what is known, and forgets it. */
  handOver(ip: string): Promise<void>
  /** Whether the path takes messages now (`lane`: of this one). Takes nothing; cheap enough for every candidate. */
  gate(path: ShapedPath, lane: Lane | null): Gate
  /** Takes tokens of the path's message rate and of its pool's. */
  take(path: ShapedPath, count: number): Tokens
  /** Taken, but not sent. */
  giveBack(path: ShapedPath, count: number): void
  noteTry(path: ShapedPath, lane: Lane, note: TryNote): void
  noteConnections(path: ShapedPath, notes: readonly ConnectionNote[]): void
  /** Milliseconds for which path errors leave the path alone still; 0: they do not. */
  waitOf(path: ShapedPath): number
  /** Paths and lanes with a limit, a wait or a suspension; longest lasting first. */
  views(): PathView[]
  /** An operator lets nothing leave from an IP to a provider until it is resumed. In force at once, then stored. */
  suspend(request: { ip: string; provider: string; reason: string | null; actor: string }): Promise<void>
  /**
   * An operator lifts limits, waits and suspensions; how many paths and lanes had any. The ladder keeps its step. In
   * force at once, then stored.
   */
  resume(filter: PathFilter): Promise<number>
  /** What holds the path back beyond its configuration, a sentence each; empty: nothing. */
  explain(path: ShapedPath, lane: Lane): string[]
  /** Every 10 s: saves what changed, forgets what says nothing any more. */
  tick(): Promise<void>
  /** A path or lane may take messages that could not before; called by a timer on the earliest end, or at once. */
  onOpen(listener: () => void): void
}

/** What is left out does not restrict. */
export interface PathFilter {
  ip?: string
  /** A provider's id means all of its routes, where an operator suspended them. */
  route?: string
  /** Id of a block of providers.yaml. */
  provider?: string
  /** Of a lane, here and below: no path is meant then, and no suspension by hand. */
  pool?: string
  /** The sending domain. */
  domain?: string
}

/** A path, a lane, or a provider that is held on an IP. */
type Filtered = { [Name in keyof PathFilter]?: string | null | undefined }

export function isMeant(filter: PathFilter, record: Filtered): boolean {
  const names = ['ip', 'route', 'provider', 'pool', 'domain'] as const
  return names.every((name) => filter[name] === undefined || filter[name] === record[name])
}

/** How a path or lane stands; the first that fits. */
export type PathStatus =
  | 'suspended' // nothing goes (egress/README.md "Suspension ladder")
  | 'waiting' // its hosts did not answer: nothing goes for a while (egress/README.md "Back-off of a path")
  | 'probing' // one message at a time, until it is known to work again
  | 'limited' // slower, by a reply rule
  | 'open'

/** One thing that holds a path or lane back. */
export interface PathHold {
  /** `careful`: a host gets one message after the other. */
  kind: 'suspension' | 'wait' | 'limit' | 'careful'
  /** `provider`: all paths of the IP to it, by an operator. */
  scope: 'path' | 'lane' | 'provider'
  /** Id of the reply rule; null: another cause. */
  rule: string | null
  /** The reply that caused it, or what failed. */
  cause: string
  since: number
  /** End of the suspension or wait; of a limit: when it begins to double back; null: when somebody resumes it. */
  until: number | null
  /** What is left of a limit now; null: not limited by it. */
  rate: Rate | null
  connections: number | null
  messagesPerConnection: number | null
}

export interface PathView {
  /** Null: a lane, on all IPs of its pool. */
  ip: string | null
  /** The pool of a lane; null: a path. */
  pool: string | null
  route: string
  provider: string | null
  isp: string
  /** The sending domain of a lane; null: the whole path. */
  domain: string | null
  status: PathStatus
  /** Sessions it may have now by what was learnt; null for a lane. */
  concurrency: number | null
  /** Step of the suspension ladder, 0: none (egress/README.md "Suspension ladder"). */
  step: number
  holds: PathHold[]
}

/** What others are told; never called while one of its callers is still inside. */
export interface ShapingSignals {
  /** The IP is blocked somewhere: its warmup may have to pause (egress/README.md "Gates"). */
  onBlock(block: BlockNote): void
  /** Three providers suspended the IP within 1 h: it is suspended as a whole. */
  onIpSuspension(ip: string, until: number, reason: string): void
  /** A sending domain is suspended on a route. */
  onLaneSuspension(lane: LaneSuspension): void
  /** No path of the IP connects while other IPs reach the same routes: filtered, or gone. */
  onIpUnreachable(ip: string, reason: string): void
}

type LaneSuspension = Record<'pool' | 'route' | 'isp' | 'domain' | 'reason', string> & { until: number }
