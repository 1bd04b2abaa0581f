/**
 * What a mail that came back states, before anybody believes it (inbound/README.md "Reports"). A reading names
 * addresses as the mail does. State changes only through a token of ours: the envelope recipient, which the caller has,
 * or one of `references`. RFC 3464, RFC 5965, RFC 3834.
 */
import type { ReportStage } from '../reply/smtp-reply.ts'

export type ReportKind =
  | 'bounce' // a recipient did not get the message, for good
  | 'notice' // nothing failed: delayed, delivered, relayed or expanded
  | 'auto-reply' // a vacation note, a challenge or another answer of a program
  | 'complaint' // a recipient or a provider calls the message abuse, fraud, virus
  | 'other' // a mail like any other, or a feedback report that is no complaint

/** RFC 3464 §2.3.3. */
const REPORT_ACTIONS = ['failed', 'delayed', 'delivered', 'relayed', 'expanded'] as const
export type ReportAction = (typeof REPORT_ACTIONS)[number]

export interface ReportedRecipient {
  /** The address that was mailed, as the report has it, without angle brackets; may be no address at all. */
  address: string
  /** What it was rewritten to on the way; null: nothing else. */
  finalRecipient: string | null
  action: ReportAction
  /** Enhanced status code as d.d.d, or null when the mail holds none. */
  status: string | null
  /** Three digits of the SMTP reply, or null. */
  replyCode: number | null
  /** What the mail says about this recipient, on one line, at most 2,048 characters; may be empty. */
  diagnostic: string
  stage: ReportStage
}

/** What a diagnostic text tells of a recipient. */
export type ReportedFacts = Pick<ReportedRecipient, 'status' | 'replyCode' | 'diagnostic' | 'stage'>

/** What the report repeats of our own message; to be believed only where a token of ours verifies. */
export interface ReportReferences {
  /** ENVID of the transaction. */
  originalEnvelopeId: string | null
  /** First value of each header field of the returned message, by lower-case name: Message-ID, X-Sternpost-Ref … */
  returned: ReadonlyMap<string, string>
}

export interface ReportReading {
  kind: ReportKind
  recipients: readonly ReportedRecipient[]
  /** What a report says that names nobody: of the recipient of the message that it came back for. */
  unnamed: Omit<ReportedRecipient, 'address'> | null
  /** `Feedback-Type` in lower case, also of reports that are no complaint; null: not a feedback report. */
  feedbackType: string | null
  references: ReportReferences
}

/** Words of real servers that are no value of the standard. */
const SYNONYMS: Readonly<Record<ReportAction, string>> = {
  failed: 'failure fail permanent hardfail expired error',
  delayed: 'delay deferred temporary',
  delivered: 'delivery success',
  expanded: 'expand',
  relayed: 'relay',
}

/** An `Action` in the words that real servers use; undefined for what none is known to write. */
export function reportedAction(value: string): ReportAction | undefined {
  // The first word.
  const word = /[a-z]+/.exec(value.toLowerCase())?.[0] ?? ''
  return REPORT_ACTIONS.find((action) => action === word || SYNONYMS[action].split(' ').includes(word))
}
