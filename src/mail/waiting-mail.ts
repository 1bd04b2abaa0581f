/**
 * Waiting mail as administrators handle it: which messages are meant, in what groups they are shown, what is done with
 * them (commands/README.md "The command line"). Times are Unix milliseconds.
 */

/** Which waiting messages are meant; what is left out does not restrict. */
export interface QueueFilter {
  pool?: string
  /** The mailbox provider, as events name it. */
  isp?: string
  route?: string
  recipientDomain?: string
  /** The sending domain. */
  domain?: string
  /** The IP of the last attempt. */
  ip?: string
  /** Only those that are held. */
  isHeld?: boolean
  /** Only those that were accepted before this time. */
  acceptedBefore?: number
}

export type QueueAction =
  | { kind: 'retry' } // due now
  | { kind: 'hold' } // not sent until it is released; its lifetime goes on
  | { kind: 'release' }
  | { kind: 'drop' } // ends as canceled with its event
  | { kind: 'move'; pool: string }

/** What makes a group: mailbox provider, recipient domain, IP of the last attempt, or pool. */
export type QueueGrouping = 'isp' | 'domain' | 'ip' | 'pool'

export interface QueueGroup {
  /** null: not known yet. */
  name: string | null
  waiting: number
  due: number
  held: number
  oldestAcceptedAt: number
}
