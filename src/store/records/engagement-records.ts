/** Opens, clicks and unsubscribes. */
import type { Unsubscribe, Variables } from '../../mail/message.ts'

/** An open or a click, as it came. */
export interface EngagementHit {
  messageId: string
  /** The link that was followed, with its address; null: the pixel was fetched. */
  link: { number: number; url: string } | null
  at: number
  /** As far as the request tells; the time of the delivery may still make it one. */
  isMachine: boolean
  /** Who it was; null: not to be kept. */
  client: { address: string; userAgent: string } | null
}

export interface RecordEngagementRequest {
  now: number
  /** In the order they came. */
  hits: EngagementHit[]
  /** Milliseconds from the delivery within which no person opens a mail. */
  machineAfterDelivery: number
}

/** What was counted. */
export interface EngagementTally {
  opens: number
  clicks: number
  machineOpens: number
  machineClicks: number
}

/** What the links of one message are found again by; its html is that of the content. */
export interface LinkSource {
  contentId: number
  hasVariables: boolean
  variables: Variables
  unsubscribe: Unsubscribe | null
  /** The sending domain's own host of tracked links, once it was verified; null: the server's. */
  trackingHost: string | null
}

/** The part of a content that has links. */
export interface LinkHtml {
  html: string | null
  /** Of submitted mail. */
  raw: Uint8Array | null
}

type UnsubscribeResult =
  | { kind: 'unsubscribed' } // the address is on the list of the mail now, and the event went out
  | { kind: 'repeated' } // it was before
  | { kind: 'unknown' } // no such message, or it is of no list

export interface EngagementVerbs {
  /**
   * Counts each hit; the first open of a message and the first click on each of its links are events with their webhook
   * deliveries. Hits of machines are counted apart and told to endpoints that include them. Returns what was counted as
   * what.
   */
  recordEngagement(request: RecordEngagementRequest): Promise<EngagementTally>
  /** Suppression (scope: the list of the message) and event; repeating it changes nothing. */
  recordUnsubscribe(request: { messageId: string; now: number }): Promise<UnsubscribeResult>
  /** null: no such message. */
  linkSource(messageId: string): Promise<LinkSource | null>
  /** null: the content or its bodies are not there any more. */
  linkHtml(contentId: number): Promise<LinkHtml | null>
}
