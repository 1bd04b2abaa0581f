/**
 * Waiting mail: why a message waits (http/README.md "Explain"), and what administrators do with those that wait
 * (commands/README.md "The command line"). Times are Unix milliseconds.
 */

export type WaitingFor =
  | 'send_at' // its time
  | 'retry_delay' // the next attempt of its schedule
  | 'warmup_day' // tomorrow's allowance of a warming IP
  | 'warmup_hour' // the next part of today's allowance
  | 'provider_share' // the provider's part of the allowance
  | 'rate' // a limit of messages in a time
  | 'connections' // a limit of connections
  | 'sockets' // this server: it has no socket or port free
  | 'suspension' // the end of a pause that the receiver caused
  | 'ip_paused' // an IP: all of them are paused
  | 'held' // the operator

/** What delivery knows of a message that waits. */
export interface WaitReason {
  waitingFor: WaitingFor
  /** null: nobody knows. */
  untilMilliseconds: number | null
  /** A sentence. */
  text: string
}

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

/** What makes a group: what the filter of the same name restricts. */
export type QueueGrouping = keyof Pick<QueueFilter, 'isp' | 'recipientDomain' | 'domain' | 'ip' | 'pool'>

export interface QueueGroup {
  /** null: not known yet. */
  name: string | null
  waiting: number
  due: number
  held: number
  oldestAcceptedAt: number
}
