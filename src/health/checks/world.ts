/**
 * What the checks look at. The server hands over all of it; the command line alone knows nothing that only a running
 * server can say.
 */
import type { Clock } from '../../base/clock.ts'
import type { Mistake } from '../../base/errors.ts'
import type { Configuration } from '../../config/load-configuration.ts'
import type { IpView } from '../../egress/ips/ip-view.ts'
import type { GuardedDocument } from '../../network/guarded-request.ts'
import type { Resolver } from '../../network/resolver.ts'
import type { DomainView } from '../../senders/domain-view.ts'
import type { QuickCheck } from '../../store/open/quick-check.ts'
import type { CertificateRecord } from '../../store/records/certificate-records.ts'
import type { NodesSeen } from '../../store/records/node-records.ts'
import type { ReportSums } from '../../store/records/report-records.ts'
import type { WebhookEndpointState } from '../../store/records/webhook-records.ts'

export interface CheckedIp {
  address: string
  /** The address to bind. */
  source: string
  hostname: string
  pool: string
}

export interface CheckWorld {
  configuration: Configuration
  /** Of the configuration files; null: not known. */
  folder: string | null
  /** Those that are asked about. */
  ips: readonly CheckedIp[]
  /** The sending domain that is asked about; null: all. */
  domain: string | null
  resolver: Resolver
  /** For blocklists, which refuse public resolvers. */
  blocklistResolver: Pick<Resolver, 'addresses' | 'txt'>
  clock: Pick<Clock, 'now'>
  fetchDocument(url: string): Promise<GuardedDocument>
  /** As the files are now, and what a reload would change. */
  filesNow(): Promise<FilesNow>
  /** null: no server runs here. */
  server: ServerFacts | null
}

export interface FilesNow {
  mistakes: readonly Mistake[]
  /** What the running server does not know yet, as a reload prints it; null: no server runs. */
  changes: readonly string[] | null
}

/** What only the running server knows. */
export interface ServerFacts {
  /** `nodeId`: of the one that answers; null: there is one, with SQLite. */
  nodes(): Promise<NodesSeen & { nodeId: string | null; problems: { ip: string; problem: string }[] }>
  /** false: the clock of this machine jumped, or is far from the newest mail, so that nothing ends by time. */
  isClockSteady(): boolean
  /** Domains that send, by name; asked anew where somebody waits for the answer. */
  domains(only: string | null): Promise<DomainView[]>
  ips(): Promise<IpView[]>
  /** That authorities are asked for. */
  certificates(): Promise<CertificateRecord[]>
  queue(): Promise<QueueFacts>
  /** What was in nobody's hand, and was freed; counted from the start of the server on. */
  orphans(): Promise<{ messages: number; webhooks: number; upMilliseconds: number }>
  webhooks(): Promise<{ endpoints: WebhookEndpointState[]; oldestDueAt: number | null }>
  /** Since a time: messages that went out, and reports that came back for any. */
  reportSums(since: number): Promise<ReportSums>
  database(): Promise<DatabaseFacts>
  /** Why the server of the database does not take all that is written, as it says itself; null: it does. */
  databaseRefusal(): string | null
  quickCheck(): Promise<QuickCheck>
}

interface QueueFacts {
  /** Unix milliseconds; null: nothing is due. */
  oldestDueAt: number | null
  /** Waiting beyond their lifetime; leased for longer than any attempt takes. */
  overdue: number
  stuck: number
  groups: { name: string | null; waiting: number; due: number; held: number }[]
}

export interface DatabaseFacts {
  bytes: number
  walBytes: number
  /** Bytes a day over the last days; null: not known yet. */
  growthPerDay: number | null
  /** Of the newest commits, the mean; null: there was none. */
  commitMilliseconds: number | null
}
