/** Retention: what is asked of one slice, and what it did. */

/** A part of a table, from its oldest rows on. */
export interface ForgetRequest {
  /** Final before this time. */
  before: number
  /** Rows of a later time were written by a clock that ran ahead: behind them may be older ones. */
  now: number
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

interface ForgetMessagesRequest extends ForgetRequest {
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

/** One part of it. */
interface EraseStep {
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

export interface RetentionVerbs {
  /** In capitals and small letters, in which it stands anywhere, and those that the suppression list is asked for. */
  spellingsOf(address: string): Promise<string[]>
  /** Contents whose messages are all final, and were before that time. */
  overdueContents(request: ForgetRequest): Promise<{ contents: OverdueContent[]; next: number | null }>
  /**
   * Bodies and attachments of those that are still over; `links` stay: JSON of the targets, null: none. As many as fit
   * into a slice, at least one: so many from the beginning of the list were looked at.
   */
  forgetContents(request: {
    before: number
    contents: { contentId: number; links: string | null }[]
  }): Promise<{ removed: number; looked: number }>
  /** What `forgetContents` was given for a content, or null. */
  keptLinks(contentId: number): Promise<string | null>
  /**
   * Messages with all that is about them; where links of them may still be followed, a trace stays. Stays too: what is
   * not final, has its content still, or has a webhook delivery that waits or is a dead letter.
   */
  forgetMessages(request: ForgetMessagesRequest): Promise<ForgetStep>
  /** Events of no message. */
  forgetEvents(request: ForgetRequest): Promise<ForgetStep>
  forgetTranscripts(request: ForgetRequest): Promise<ForgetStep>
  /** Kept targets of messages that are there: their links are gone from then on. */
  forgetLinks(request: ForgetRequest): Promise<ForgetStep>
  forgetTraces(request: ForgetRequest): Promise<ForgetStep>
  /** Cuts free space off the file, but so many bytes, in at most so many pages; returns how many bytes went. */
  giveBackPages(keptBytes: number, limit: number): Promise<number>
  databaseSize(): Promise<DatabaseSize>
  /** An estimate, in a few milliseconds whatever the size. */
  storageFigures(): Promise<StorageFigures>
  /**
   * One part of erasing an address: it is replaced in its messages, and what waits for it is canceled. With the last
   * part it is on the suppression list as a keyed hash, so that nothing is sent to it again. `address`: in its
   * comparable form; messages up to `after` were seen.
   */
  eraseSomeOfRecipient(request: { address: string; after: number; now: number }): Promise<EraseStep>
  /** Kept once for each UTC day. */
  noteDatabaseSize(day: string, bytes: number): Promise<void>
}
