/**
 * The store: the only way to durable data; the only folder with SQL is this one. Each verb and its promise stands with
 * the data of its noun in `records/`.
 *
 * Every verb is one transaction that begins and ends inside it and is resolved only after the commit
 * (`synchronous=FULL`): what a caller was told survives a crash. A verb either happens completely or not at all; a
 * rejected verb changed nothing. Verbs are asynchronous and take and return plain data, so that another engine can
 * stand beside the SQLite one without a change outside this folder. No verb waits for the network. Times are Unix
 * milliseconds, byte strings are Uint8Array, identifiers carry their prefix.
 *
 * Rejections: an error whose `code` is the engine's (SQLITE_FULL, SQLITE_IOERR …) when the commit failed; ServiceError
 * `unavailable` from a store that is closed, whose thread has ended, or whose server does not answer.
 */
import type { AcceptVerbs } from './records/accept-records.ts'
import type { AuthenticationVerbs } from './records/authentication-records.ts'
import type { CertificateVerbs } from './records/certificate-records.ts'
import type { ConsoleVerbs } from './records/console-records.ts'
import type { QueueVerbs } from './records/claim-records.ts'
import type { EngagementVerbs } from './records/engagement-records.ts'
import type { MessageVerbs } from './records/lookup-records.ts'
import type { NodeVerbs } from './records/node-records.ts'
import type { ReportVerbs } from './records/report-records.ts'
import type { RetentionVerbs } from './records/retention-records.ts'
import type { SenderVerbs } from './records/sender-records.ts'
import type { StatisticsVerbs } from './records/statistics-records.ts'
import type { SuppressionVerbs } from './records/suppression-records.ts'
import type { TlsVerbs } from './records/tls-records.ts'
import type { IpVerbs } from './records/warmup-records.ts'
import type { WebhookVerbs } from './records/webhook-records.ts'

export interface Store
  extends
    QueueVerbs,
    NodeVerbs,
    AcceptVerbs,
    MessageVerbs,
    ReportVerbs,
    AuthenticationVerbs,
    SenderVerbs,
    CertificateVerbs,
    SuppressionVerbs,
    EngagementVerbs,
    IpVerbs,
    TlsVerbs,
    RetentionVerbs,
    WebhookVerbs,
    ConsoleVerbs,
    StatisticsVerbs {
  /** For metrics; cheap. */
  figures(): Promise<StoreFigures>
  /** Answers when the engine is alive, or known to be away: the trivial read of the watchdog. */
  tick(): Promise<void>
  /** Why the engine does not answer, as a clause; null: it does. */
  problem(): string | null
  /** Why the engine, which answers, does not take all that is written, as it says itself; null: it does. */
  refusal(): string | null
  /** Mean of the newest commits, in milliseconds; null: there was none. */
  commitTime(): number | null
  /** Finishes what was called before, and closes. What is still held then is found by the next `beginEpoch`. */
  close(): Promise<void>
}

/** Counts for metrics. */
export interface StoreFigures {
  /** Bytes on the disk. */
  database: number
  /** The same for what was committed and is not in the database file yet. */
  writeAheadLog: number
  /** Messages under a lease, by pool; pools without any are left out. */
  sending: { pool: string; messages: number }[]
  webhooks: {
    /** Deliveries that wait or are under way. */
    pending: number
    /** When the oldest delivery was made that an enabled endpoint has not taken, or null. */
    oldestMadeAt: number | null
    /** Kept dead letters that came since their endpoint was enabled. */
    deadLetters: number
  }
}
