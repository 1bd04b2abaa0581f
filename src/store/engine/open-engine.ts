/** What the thread of the store works with: an engine that is open, with its tables as this program needs them. */
import type { DatabaseSize } from '../records/retention-records.ts'
import type { Database } from './database.ts'

/** A connection that writes, one transaction at a time. */
export interface WritingDatabase extends Database {
  /** A transaction is open. The engine itself may end one, as SQLite does when the disk is full. */
  readonly inTransaction: boolean
}

/** What an engine tells by itself, whatever its thread waits for. A reason of null: it is over. */
export type EngineNote =
  | { kind: 'away'; reason: string | null } // all that is asked fails
  | { kind: 'refusal'; reason: string | null } // it answers, and does not take all that is written

export interface OpenEngine {
  /** The only connection of this process that writes. */
  writer: WritingDatabase
  /** Sees what was committed; answers lookups. */
  reader: Database
  databaseSize(): DatabaseSize
  /** Cuts free space off, but `keptBytes` of it, in at most `limit` steps; returns how many bytes went. */
  giveBackPages(keptBytes: number, limit: number): number
  /** Throws when what is committed would not be found again. Asked before each group and before its answers. */
  requireInPlace(): void
  /** Called when the answers of a group or two have left, with the bytes of their arguments; left out: it looks at once. */
  afterGroup(bytes?: number): void
  /**
   * A verb failed by what it had done before, without waiting for the answer: told by whatever came behind it, a commit
   * too.
   */
  isLate(thrown: unknown): boolean
  /**
   * Of a commit that threw: whether it happened all the same; null: not known yet, `undefined`: it did not.
   * The store's own connection is there again when it is known.
   */
  wasCommitted(thrown: unknown): boolean | null | undefined
  /** The database is not sound any more: going on could only make it worse. */
  isDamage(thrown: unknown): boolean
  /** A group of verbs that has worked for so long ends. */
  mostWorkMilliseconds: number
  /** What somebody has to know of what was opened; left out or null: nothing. */
  warning?: string | null
  /** For the log: how it is kept. */
  facts: Record<string, string | number>
  close(): void
}
