/** Dedicated IPs: state, warmup days, allowance, audit and statistics. A day is a UTC date, YYYY-MM-DD. */
import type { ServiceEvent } from '../../mail/event.ts'

export type StoredIpState = 'cold' | 'warming' | 'paused' | 'warmed' | 'suspended'

/** What is known of an egress IP beyond the configuration. Its states: `egress/warmup/warmup-states.ts`. */
export interface IpRecord {
  ip: string
  state: StoredIpState
  /** While paused or suspended: the state it goes back to; else null. */
  formerState: StoredIpState | null
  /** While paused or suspended: until when; null: until somebody resumes it. */
  until: number | null
  /** Why it is paused, suspended or held; else null. */
  reason: string | null
  /** Who brought it into this state: `key_…`, `cli`, `gate`, `clock`, `config`. */
  actor: string
  since: number
  /** The rest is null while it is cold or was never warmed up here. */
  curve: string | null
  /** From 1. */
  stage: number | null
  targetDailyVolume: number | null
  startedAt: number | null
  /** Why the last closed day did not advance it. */
  holdReason: string | null
  /** Days closed in a row without an advance. */
  daysHeld: number
  /** Healthy days in a row at or above the target. */
  daysAtTarget: number
  /** Pauses by a gate: times of the last 7 days. */
  pausedAt: number[]
  /** Last day that was closed. */
  closedDay: string | null
  /** The last grant or send. */
  lastSentAt: number | null
  /** Raised by one with each change: a change that has seen an older one is refused. */
  version: number
}

export interface AuditRecord {
  at: number
  ip: string
  actor: string
  /** start, advance, hold, demote, pause, resume, complete, restart, rewarm, stage, suspend, unsuspend, … */
  action: string
  fromState: StoredIpState
  toState: StoredIpState
  fromStage: number | null
  toStage: number | null
  day: string | null
  /** What the decision was made by: cap, granted, rates, counts. */
  figures: Record<string, number | string | null>
  reason: string | null
}

/** A change of an IP's state with its audit row and events, in one transaction. */
export interface IpChange {
  /** `version` is that which was read; the stored one becomes version + 1. */
  record: IpRecord
  audit: AuditRecord[]
  events: ServiceEvent[]
  /** New cap of today's rows, when the stage changed; never below what is granted. */
  caps: { day: string; cap: number; providerCaps: Record<string, number>; defaultProviderCap: number } | null
}

/** What a warming IP may send in a day, as the configuration has it now: rows of the day are made from it. */
export interface AllowanceRule {
  day: string
  cap: number
  /** By isp; an isp that is not named has `defaultProviderCap`. */
  providerCaps: Record<string, number>
  defaultProviderCap: number
  /** The part of the day in which something is granted. */
  windowFrom: number
  windowTo: number
  burstFraction: number
  minBurst: number
  maxBurst: number
  /** Share of the cap that may go in a rolling hour, at least 5 messages. */
  hourlyFraction: number
}

export interface ReserveRequest {
  now: number
  asks: { ip: string; isp: string; count: number; rule: AllowanceRule }[]
}

export interface Reservation {
  ip: string
  isp: string
  /** Of the rule, and `now` of the request: with ip and isp they make a Grant. */
  day: string
  at: number
  granted: number
  /** When the next one can be granted, when fewer were granted than asked; else null. */
  nextAt: number | null
  /** Milliseconds between two grants from then on: how many a later ask may hope for. */
  interval: number
  reason: 'warmup_day' | 'warmup_hour' | 'provider_share' | null
}

/**
 * Counts of messages first tried on a day; `deferred`: first attempts deferred as rate, ip_block, domain_block or
 * policy.
 */
type DayCounter = 'firstAttempts' | 'delivered' | 'hard' | 'soft' | 'block' | 'undetermined' | 'deferred' | 'complained'

/** A day of a warming IP; `isp` `*`: all together. */
export interface WarmupDay extends Record<'cap' | 'granted' | 'refunded' | DayCounter, number> {
  ip: string
  day: string
  isp: string
}

/** One hour of one IP and isp; sums over hours are the statistics of http/README.md "IP statistics". */
export interface IpHour extends Record<IpCounter, number> {
  ip: string
  isp: string
  /** Unix milliseconds of its beginning. */
  hour: number
}

export type IpCounter =
  | 'messages'
  | 'attempts'
  | 'delivered'
  | 'deferred'
  | `bounced${'Hard' | 'Soft' | 'Block' | 'Undetermined'}`
  | 'complained'
  | 'opened'
  | 'clicked'

export interface IpStatistics {
  /** All isps together, `*`: the hours that had traffic, oldest first. */
  hours: IpHour[]
  /** Sums over the whole time, one for each isp; `hour` is the beginning of that time. */
  isps: IpHour[]
  /** By isp, in milliseconds: 95th percentile of the duration of delivering attempts on the days it touches. */
  p95: Record<string, number>
}

export type IpHealth = Record<'firstAttempts' | 'hard' | 'complained' | 'delivered' | 'blocks', number>

/** What a path is under, so that a restart forgets no suspension (egress/README.md "Shaping"). */
export interface PathStateRecord {
  ip: string
  route: string
  /** JSON, opaque to the store. */
  state: string
  savedAt: number
}

export interface IpVerbs {
  /** Every egress IP that was ever configured here. */
  ipRecords(): Promise<IpRecord[]>
  /** Adds those that are not there yet. */
  addIpRecords(records: IpRecord[]): Promise<void>
  /** False, and nothing changed: another change came first. */
  changeIp(change: IpChange): Promise<boolean>
  /** Guarded: the sum of what is granted never passes day cap, rolling hour, provider share or pace. */
  reserveAllowance(request: ReserveRequest): Promise<Reservation[]>
  /** Days from `from` on, one row per isp and `*`; oldest first. */
  warmupDays(ip: string, from: string): Promise<WarmupDay[]>
  warmupAudit(ip: string, limit: number): Promise<AuditRecord[]>
  /** For the gates that look at the last hour. */
  ipHealth(ip: string, since: number): Promise<IpHealth>
  /** Messages that reached RCPT, by UTC date, of the last days that had any; newest first. */
  ipDays(ip: string, limit: number): Promise<{ day: string; messages: number }[]>
  ipStatistics(ip: string, from: number, to: number): Promise<IpStatistics>
  /** First attempts by isp of all IPs of a list: the mix a forecast assumes. */
  ispMix(ips: string[], since: number): Promise<Record<string, number>>
  loadPathStates(): Promise<PathStateRecord[]>
  /** `state` '' forgets it. */
  savePathStates(states: PathStateRecord[]): Promise<void>
  /**
   * What is older than these times, at most about `limit` rows of each table; returns how many. `hoursBefore`: hours by
   * isp, whose sums stay in the days.
   */
  forgetIpHistory(request: {
    hoursBefore: number
    statisticsBefore: number
    auditBefore: number
    limit: number
  }): Promise<number>
}
