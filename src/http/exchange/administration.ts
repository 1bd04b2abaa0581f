/**
 * What administrators ask of a running server beside the contract: the reload, the queue as a whole, paths, pools, the
 * daily volume of an IP, and where the mail of a domain goes. The composition root hands it over (commands/README.md
 * "The command line").
 *
 * Not part of the contract of apps: the routes of `routes/administration.ts` are for the command line of the same
 * version. ServiceError `not_found` for an unknown IP or pool, `invalid_request` for a value that can not be; other
 * errors are the store's.
 */
import type { Mistake } from '../../base/errors.ts'
import type { LogLevel } from '../../base/logger.ts'
import type { ConfigurationChange } from '../../config/configuration-diff.ts'
import type { Pool } from '../../config/settings/pool-settings.ts'
import type { EgressIp } from '../../egress/ips/egress-ip.ts'
import type { IpView } from '../../egress/ips/ip-view.ts'
import type { MailboxProvider } from '../../egress/shaping/mailbox-provider.ts'
import type { SendDay } from '../../egress/moves/warmup-forecast.ts'
import type { PathFilter, PathView } from '../../egress/shaping/shaping.ts'
import type { Warmup } from '../../egress/moves/warmup.ts'
import type { DataAdministration } from './data-administration.ts'
import type { HealthKeeper } from '../../health/health-keeper.ts'
import type { QueueAction, QueueFilter, QueueGroup, QueueGrouping } from '../../mail/waiting-mail.ts'

export interface ReloadResult {
  /** False: a dry run, or there is an error among the mistakes; then nothing changed. */
  isApplied: boolean
  /** Of the configuration in force. */
  revision: number
  milliseconds: number
  changes: ConfigurationChange[]
  /** The changes as they are printed, with what follows from them. */
  lines: string[]
  /** Waiting messages of pools that are gone, which are in the default pool now. */
  moved: { pool: string; messages: number }[]
  /** Errors, or warnings of files that hold. */
  mistakes: readonly Mistake[]
}

export interface PoolState {
  name: string
  isDefault: boolean
  settings: Pool
  ips: EgressIp[]
  /** First attempts that wait. */
  waiting: number
}

export interface DomainRoute {
  domain: string
  /** What the DNS said in place of hosts, as a clause; null: there are hosts. */
  problem: string | null
  provider: MailboxProvider | null
  /** Best first. */
  hosts: { name: string; addresses: string[]; tls: HostDemand }[]
}

/** What is asked of TLS towards a host (delivery/README.md "TLS"). */
export interface HostDemand {
  /** Where it comes from. */
  policy: 'dane' | 'sts' | 'required' | 'none'
  demand: 'plain' | 'opportunistic' | 'required' | 'verified' | 'dane' | 'skip'
  /** As a clause. */
  text: string
}

export interface Administration extends DataAdministration {
  /** `revision`: of the configuration in force. */
  server(): { version: string; node: string; startedAt: number; revision: number }
  /** Logs at this level for so long, or at the configured one where that says more; which it is, and until when. */
  raiseLogLevel(level: LogLevel, milliseconds: number): { level: LogLevel; until: number }
  /** Takes the files over, all of them or none. Mistakes in them are a result. */
  reload(isDryRun: boolean): Promise<ReloadResult>
  /** Largest first. */
  queueGroups(by: QueueGrouping, filter: QueueFilter): Promise<QueueGroup[]>
  /** How many messages it changed, or would change. */
  actOnQueue(action: QueueAction, filter: QueueFilter, isDryRun: boolean): Promise<number>
  /** Paths and lanes that are limited, wait or are suspended; longest lasting first. */
  paths(filter: PathFilter): PathView[]
  /** Lifts what holds them back; how many there were, or would be. */
  resumePaths(filter: PathFilter, isDryRun: boolean, actor: string): Promise<number>
  pools(): PoolState[]
  /** `provider`: of its mail the one to this block of providers.yaml alone; null: all of it. */
  suspendIp(ip: string, what: { provider: string | null; reason: string | null }, actor: string): Promise<IpView>
  /** Its paths are resumed with it; `provider`: those to it alone. */
  resumeIp(ip: string, provider: string | null, actor: string): Promise<IpView>
  audit: Warmup['audit']
  /** `past` days until today and `ahead` days behind it, oldest first. */
  sendDays(ip: string, past: number, ahead: number): Promise<SendDay[]>
  /** As it is now, with what is remembered of the DNS. */
  routeOf(domain: string): Promise<DomainRoute>
  /** Of the last run of all checks. */
  lastChecks: HealthKeeper['last']
  runChecks: HealthKeeper['run']
}
