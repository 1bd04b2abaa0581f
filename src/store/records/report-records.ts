/** What mail that came back says about a message, and what became of it. */
import type { Suppression } from '../../mail/reply/classify-reply.ts'
import type { Bounce } from '../../mail/reply/delivery-outcome.ts'

/** About one message, which a token of ours named. */
interface ReportRecord {
  messageId: string
  now: number
  /** A message that ended, or while it has not was to be sent, earlier than this is too old: nothing changes. */
  sentSince: number
  fact: ReportedFact
}

export type ReportedFact =
  /** It was not delivered after all. */
  | { kind: 'bounce'; bounce: Bounce; suppress: Suppression }
  /** The recipient calls it spam; the type is that of RFC 5965. */
  | { kind: 'complaint'; feedbackType: string }
  /** The recipient wants no more mail of any list. */
  | { kind: 'opt-out' }
  /** Anything else that is worth a line in its timeline, once: `delayed`, `relayed`, `not-spam` … */
  | { kind: 'note'; about: string; description: string }

export type ReportResult =
  /** State, event and suppression, as the fact has them. `isSimulated`: nothing is suppressed, nothing counted. */
  | { kind: 'recorded'; isp: string | null; isSimulated: boolean; isSuppressed: boolean }
  /** A line in the timeline and nothing else: a note, or a bounce of a message that waits or has ended otherwise. */
  | { kind: 'noted' }
  /** The same was reported before. */
  | { kind: 'repeated' }
  /** A bounce of a message whose delivery is just being recorded: nothing was done, ask again. */
  | { kind: 'under-way' }
  | { kind: 'too-old' }
  | { kind: 'unknown-message' }

/** A report that names none of our messages, kept for the operator to look at. */
export interface UnmatchedReport {
  at: number
  /** What the reader took it for. */
  kind: string
  /** As given in MAIL FROM and RCPT TO. */
  sender: string
  recipient: string
  remoteAddress: string
  /** Its first bytes. */
  bytes: Uint8Array
}

/** Messages that reached RCPT from any IP, and reports that came back by mail, since a time. */
export interface ReportSums {
  sent: number
  bounces: number
  complaints: number
}

export interface ReportVerbs {
  /** A late bounce, a complaint or a note, with its event and suppression: once for each message and kind. */
  recordReport(report: ReportRecord): Promise<ReportResult>
  /** A bounded sample: the newest stay. */
  keepUnmatchedReport(report: UnmatchedReport): Promise<void>
  /** Newest first. */
  listUnmatchedReports(limit: number): Promise<UnmatchedReport[]>
  /** Those that came before this time; returns how many. */
  forgetUnmatchedReports(before: number): Promise<number>
  reportSums(since: number): Promise<ReportSums>
}
