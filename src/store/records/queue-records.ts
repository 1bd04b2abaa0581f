/** The queue as the scheduler sees it: keys, routes, waiting and queued rows, expiry; claims are `claim-records.ts`. */
import type { Stream } from '../../mail/message.ts'

export type { WaitingFor } from '../../mail/waiting-mail.ts'

/** The unit the scheduler claims from: rows of one key leave the same pool to the same route for the same sender. */
export interface QueueKey {
  pool: string
  /** Name of the route: a provider id or a site name; UNROUTED while the hosts of the domain are not known. */
  route: string
  /** Sending domain and stream: the lane. */
  domain: string
  stream: Stream
  /** Rows with an attempt behind them stand apart from first attempts: they take turns, and cost no allowance. */
  isRetry: boolean
}

/** The route of rows whose recipient domain has not been looked up. */
export const UNROUTED = ''
/** The route of mail that never leaves the host. */
export const CAPTURE_ROUTE = 'capture'

export interface QueueKeyState extends QueueKey {
  /** When its first row is due, or was: never later than the truth. */
  earliestAt: number
  /** Rows that wait in it, due or not: in a page at most its `mostRows`, after a change those that came. */
  waiting: number
}

export interface QueueKeyPage {
  keys: QueueKeyState[]
  /** Where the next page begins; null: this was the last. */
  next: QueueKey | null
}

/** Rows that came into the queue with one verb. */
export interface QueuedRows {
  /** Per key: how many came, and when the first of them is due. UNROUTED keys too. */
  keys: QueueKeyState[]
  /** Recipient domains without a route among them. */
  unroutedDomains: string[]
}

export interface RouteAssignment {
  /** Recipient domain. */
  domain: string
  /** Never UNROUTED. */
  route: string
  isp: string
}

/** When what is held is due, the year 9999: later than the end of any lifetime. */
export const HELD_UNTIL = Date.UTC(9999, 11, 31)

/** One unit of warmup allowance, taken for one message. */
export interface Grant {
  ip: string
  isp: string
  /** UTC date of the grant, YYYY-MM-DD. */
  day: string
  /** When it was granted: the five minutes of that time get it back. */
  at: number
}

/** A message that has ended because its lifetime is over. */
export interface ExpiredMessage {
  id: string
  pool: string
  /** Sending domain. */
  domain: string
  /** It would never have left the host. */
  isCaptured: boolean
  /** It may have arrived: it ended as `ambiguous`. */
  isPossibleDuplicate: boolean
}
