/**
 * The rows of messages as they lie in the database file: what only a look from outside can show after a kill.
 */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'

export interface QueueRow {
  recipient: string
  state: string
  attempts: number
  isMarked: boolean
  isPossibleDuplicate: boolean
  nextAt: number
  createdAt: number
}

export function queueRows(databaseFolder: string): QueueRow[] {
  return withDatabase(databaseFolder, (database) => {
    const rows = database
      .prepare<[], StoredRow>(
        `
      select recipient, state, attempts, dot_sent as isMarked, possible_duplicate as isPossibleDuplicate,
        next_at as nextAt, created_at as createdAt
      from messages`,
      )
      .all()
    return rows.map((row) => ({
      ...row,
      isMarked: row.isMarked === 1,
      isPossibleDuplicate: row.isPossibleDuplicate === 1,
    }))
  })
}

/** No message waits or is being sent. */
export function hasEnded(databaseFolder: string): boolean {
  const { waiting = 0, sending = 0 } = stateCounts(databaseFolder)
  return waiting + sending === 0
}

/** Messages in each stored state. */
export function stateCounts(databaseFolder: string): Record<string, number> {
  return withDatabase(databaseFolder, (database) => {
    const rows = database
      .prepare<[], { state: string; count: number }>('select state, count(*) as count from messages group by state')
      .all()
    return Object.fromEntries(rows.map(({ state, count }) => [state, count]))
  })
}

/** `ok`, or what SQLite found. */
export function integrityOf(databaseFolder: string): string {
  return withDatabase(databaseFolder, (database) => String(database.pragma('integrity_check', { simple: true })))
}

/** Keeps every other connection from writing until it is let go. */
export function lockWriting(databaseFolder: string): { release(): void } {
  const database = new Sqlite(fileOf(databaseFolder), { timeout: 60_000 })
  database.exec('begin immediate')
  return {
    release() {
      database.exec('rollback')
      database.close()
    },
  }
}

interface StoredRow extends Omit<QueueRow, 'isMarked' | 'isPossibleDuplicate'> {
  isMarked: number
  isPossibleDuplicate: number
}

function withDatabase<Result>(databaseFolder: string, read: (database: Sqlite.Database) => Result): Result {
  const database = new Sqlite(fileOf(databaseFolder), { readonly: true, timeout: 60_000 })
  try {
    return read(database)
  } finally {
    database.close()
  }
}

function fileOf(databaseFolder: string): string {
  return join(databaseFolder, 'sternpost.db')
}
