/** Counts for metrics. */
export interface StoreFigures {
  /** Bytes on the disk. */
  database: number
  /** The same for what was committed and is not in the database file yet. */
  writeAheadLog: number
  /** Messages under a lease, by pool; pools without any are left out. */
  sending: { pool: string; messages: number }[]
  webhooks: {
    /** Deliveries that wait or are under way. */
    pending: number
    /** When the oldest event happened that an enabled endpoint has not taken, or null. */
    oldestEventAt: number | null
    /** Kept dead letters that came since their endpoint was enabled. */
    deadLetters: number
  }
}
