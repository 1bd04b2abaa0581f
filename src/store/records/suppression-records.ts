/**
 * The suppression list: addresses nothing is sent to (http/README.md "Suppressions"). Conventions as in `records.ts`.
 *
 * An address is compared with its domain lowered and its local part as it is. `scope` is `all` or a list's name. The
 * mail of test keys has a list of its own (`isTest`).
 */
export type SuppressionReason = 'hard_bounce' | 'complaint' | 'unsubscribe' | 'manual'

export interface SuppressionRecord {
  id: string
  /** Local part as given, domain as lower-case A-labels. */
  email: string
  reason: SuppressionReason
  scope: string
  isTest: boolean
  /** The message that brought it onto the list, or null. */
  messageId: string | null
  createdAt: number
}

export interface ListSuppressionsRequest {
  isTest: boolean
  email: string | null
  reason: SuppressionReason | null
  scope: string | null
  /** Unix milliseconds, or null. */
  since: number | null
  limit: number
  after: string | null
}

export interface SuppressionPage {
  /** Newest first. */
  suppressions: SuppressionRecord[]
  next: string | null
}
