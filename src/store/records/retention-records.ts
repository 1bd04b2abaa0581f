/** Retention: what is asked of one slice, and what it did. Conventions as in `records.ts`. */

/** A part of a table, from its oldest rows on. */
export interface ForgetRequest {
  /** Final before this time. */
  before: number
  /** Numbers up to this one were looked at already. */
  after: number
  /** Rows that are looked at, at most. */
  limit: number
}

export interface ForgetStep {
  /** Rows that are gone, of all tables. */
  removed: number
  /** Up to where it looked; null: nothing more can be over. */
  next: number | null
}

export interface ForgetMessagesRequest extends ForgetRequest {
  /** Messages that ended before leave no trace: their links are over too. */
  linksBefore: number
}

/** A content whose messages are all final and over. */
export interface OverdueContent {
  contentId: number
  hasVariables: boolean
  /** Its links are followed through us: their targets have to be kept. */
  tracksClicks: boolean
}

export interface OverdueContents {
  contents: OverdueContent[]
  next: number | null
}

export interface ForgetContentsRequest {
  before: number
  /** `links`: JSON of the targets, null: none to keep. */
  contents: { contentId: number; links: string | null }[]
}

export interface ForgottenContents {
  /** Rows that are gone. */
  removed: number
  /** Of the list, so many from its beginning. */
  looked: number
}

export interface DatabaseSize {
  /** Of the file. */
  fileBytes: number
  /** Of it, in pages that hold something. */
  usedBytes: number
  /** Of the write-ahead log. */
  logBytes: number
}

/** Estimated from samples; together they are what is in use. */
export interface KindBytes {
  kind: 'content' | 'messages' | 'attempts' | 'transcripts' | 'events' | 'webhook_deliveries' | 'links' | 'other'
  bytes: number
}

export interface StorageFigures extends DatabaseSize {
  kinds: KindBytes[]
  /** Mean of the last days, null: not known yet. */
  growthPerDay: number | null
}

export interface EraseRecipientRequest {
  /** In its comparable form. */
  address: string
  /** Messages up to this number were seen. */
  after: number
  now: number
}

/** One part of it. */
export interface EraseStep {
  /** In which the address was replaced. */
  messages: number
  /** Of them, those that waited. */
  canceled: number
  /** That are being sent, and stay as they are. */
  sending: number
  /** Rows beside messages. */
  others: number
  /** null: this was the last part. */
  next: number | null
}
