/**
 * The suppression list: addresses nothing is sent to (http/README.md "Suppressions"). `scope` is `all` or a list's
 * name. The mail of test keys has a list of its own (`isTest`).
 */
export type SuppressionReason = 'hard_bounce' | 'complaint' | 'unsubscribe' | 'manual'

export interface SuppressionRecord {
  id: string
  /** Local part as given, domain as lower-case A-labels. */
  email: string
  reason: SuppressionReason
  scope: string
  /** The sending domain whose mail it keeps away; null: that of all. */
  domain: string | null
  /** The sending domains that added or found it; empty: the server. */
  owners: readonly string[]
  isTest: boolean
  /** The message that brought it onto the list, or null. */
  messageId: string | null
  createdAt: number
}

interface ListSuppressionsRequest {
  isTest: boolean
  /** Those that belong to one of these sending domains; empty: all. */
  domains: readonly string[]
  email: string | null
  reason: SuppressionReason | null
  scope: string | null
  /** Unix milliseconds, or null. */
  since: number | null
  limit: number
  after: string | null
}

type RemoveSuppressionsRequest = Pick<ListSuppressionsRequest, 'isTest' | 'domains' | 'scope'> & { email: string }

export interface SuppressionVerbs {
  /**
   * Adds it, or joins it to the one with the same address, scope, domain and list, which has one more owner then. There
   * a complaint or an unsubscribe takes the place of another reason, with its message and time.
   */
  addSuppression(suppression: SuppressionRecord): Promise<{ suppression: SuppressionRecord; isNew: boolean }>
  /** Of many at once, e.g. an import: how many were new. */
  addSuppressions(suppressions: SuppressionRecord[]): Promise<number>
  /**
   * null scope: every scope; domains as in a list. What others added or found too stays theirs. Returns how many there
   * were.
   */
  removeSuppressions(request: RemoveSuppressionsRequest): Promise<number>
  /** Newest first. ServiceError invalid_request for a cursor that is none. */
  listSuppressions(
    request: ListSuppressionsRequest,
  ): Promise<{ suppressions: SuppressionRecord[]; next: string | null }>
}
