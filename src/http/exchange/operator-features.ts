/**
 * What the operator asks of a running server beside the contract: the reload, the queue as a whole, paths, pools, the
 * daily volume of an IP, where the mail of a domain goes, and the data itself. The composition root hands it over.
 *
 * ServiceError `not_found` for an unknown IP or pool, `invalid_request` for a value that cannot be; other errors are
 * the store's.
 */
import type { DomainRouteJson } from '../../api/queue.ts'
import type { ErasedRecipientJson, UnmatchedReportJson } from '../../api/server.ts'
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
import type { HealthKeeper } from '../../health/health-keeper.ts'
import type { RecipientData } from '../../messages/lookup/recipient-data.ts'
import type { NodesReport } from '../../nodes/nodes.ts'
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

/** What is asked of TLS towards a host (delivery/README.md "TLS"), `text` as a clause. */
type HostDemand = DomainRouteJson['hosts'][number]['tls']

export interface Administration extends DataAdministration, CertificateAdministration, NodeAdministration {
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
  /**
   * Lifts what holds them back; how many there were, or would be. `node`: of several nodes the one whose paths were
   * meant; null: there is no other.
   */
  resumePaths(filter: PathFilter, isDryRun: boolean, actor: string): Promise<{ paths: number; node: string | null }>
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

export interface CertificateState {
  /** The first of `names`; of a certificate without any the path of its file. */
  name: string
  names: string[]
  source: 'acme' | 'file'
  /** null: of `acme`. */
  file: string | null
  /** Who issued it, or is asked to. */
  authority: string | null
  /** Unix milliseconds; null: there is none yet. */
  endsAt: number | null
  /** null: not by itself. */
  renewsAt: number | null
  /** Of the last try; null: it went well. */
  problem: string | null
  fix: string | null
  nextTryAt: number | null
  /** A renewal has the same key, or nobody knows. */
  keepsKey: boolean
  /** The data of a TLSA record for its public key; null: there is none yet. */
  tlsa: string | null
}

export interface CertificateAdministration {
  /** Of files first, as our doors choose. */
  certificates(): Promise<CertificateState[]>
  /** Begins it; ServiceError `not_found` for a name that none is ordered for, `conflict` where none can be ordered now. */
  renewCertificate(name: string, withNewKey: boolean): Promise<void>
}

export interface NodeAdministration {
  nodes(): Promise<NodesReport>
  /** ServiceError `not_found`; `conflict` where there is one alone. */
  drainNode(nodeId: string, isDraining: boolean): Promise<void>
  /** ServiceError `not_found`; `conflict` for one that lives, and where there is one alone. */
  forgetNode(nodeId: string): Promise<void>
}

export interface StorageReport {
  /** Bytes of the database file, of it in use, of the write-ahead log, and free on its disk. */
  fileBytes: number
  usedBytes: number
  logBytes: number
  freeBytes: number
  /** Estimated; together what is in use. */
  kinds: { kind: string; bytes: number }[]
  /** Bytes, null: not known yet. */
  growthPerDay: number | null
  /** Until the budget, or the disk but for what has to stay free, is used up; null: it does not grow, or not known. */
  daysLeft: number | null
  budget: number | null
}

interface BackupFacts {
  path: string
  bytes: number
  /** Unix milliseconds. */
  madeAt: number
  schema: number
  /** Private keys of ACME in it, sealed; null: it does not say. */
  sealedAcmeKeys: number | null
}

export interface BackupsReport {
  /** null: none is being written. */
  running: { stage: string; doneBytes: number; totalBytes: number } | null
  /** How the last one that this process began has ended, null: none has. */
  last: { backup: BackupFacts; milliseconds: number; messages: number | null } | { problem: string } | null
  /** Newest first. */
  backups: BackupFacts[]
}

export interface DataAdministration {
  storage(): Promise<StorageReport>
  backups(): BackupsReport
  /** Begins one; ServiceError `conflict` while another is being written. null: into the configured folder. */
  startBackup(folder: string | null): void
  /** ServiceError `invalid_request` for what is no address. */
  exportRecipient(address: string, after: string | null): Promise<RecipientData>
  eraseRecipient(address: string): Promise<ErasedRecipientJson>
  /** Newest first. */
  unmatchedReports(limit: number): Promise<UnmatchedReportJson[]>
}
