/**
 * Pages of rows that are listed by their falling number: a cursor is the number of the last row that was looked at, so
 * a row that is added meanwhile moves no other one. Throws ServiceError invalid_request for a cursor that is none.
 */
import type { Database } from 'better-sqlite3'
import { ServiceError } from '../../../base/errors.ts'
import { oneColumn } from './statements.ts'

/** Rows that one call looks at. */
export const MOST_ROWS_READ = 10_000
// The number of a row, short enough to be exact.
const CURSOR = /^\d{1,15}$/

/** Only rows below this number are on the page. */
export function positionAfter(cursor: string | null): number {
  if (cursor === null) return Number.MAX_SAFE_INTEGER
  if (!CURSOR.test(cursor)) throw wrongCursor()
  return Number(cursor)
}

export const wrongCursor = (): ServiceError =>
  new ServiceError('invalid_request', 'after: must be the next_cursor of an earlier answer')

/** A page of `found`, which holds one row more than is wanted when there is a next page. */
export function pageOf<Row>(
  found: readonly Row[],
  limit: number,
  cursorOf: (row: Row) => string,
): { page: Row[]; next: string | null } {
  const page = found.slice(0, limit)
  const last = found.length > limit ? page.at(-1) : undefined
  return { page, next: last === undefined ? null : cursorOf(last) }
}

interface Walk {
  /** A select of the rows to look at, with `seq` among its columns, ordered by falling `seq`. */
  source: string
  /** What must hold for a row of the source, named `walked`. */
  condition: string
}

interface WalkResult {
  /** Numbers of the rows, falling. */
  found: number[]
  /** Where the next call starts, or null: everything was looked at. */
  next: string | null
}

/** Parameters are named; `limit` and `most` are the walk's own. */
export type RunWalk = (parameters: Record<string, string | number | null>, limit: number) => WalkResult

/**
 * A walk through rows in the order of their falling number which looks at so many of them at most: then it ends with
 * what it found and the place to go on from. So no search costs more because a table is large.
 */
export function createWalk(database: Database, { source, condition }: Walk): RunWalk {
  const find = oneColumn(database)<[Record<string, string | number | null>], number>(`
    select seq from (${source} limit @most) as walked where ${condition} limit @limit`)
  const findEnd = database.prepare<[Record<string, string | number | null>], { read: number; last: number | null }>(`
    select count(*) as read, min(seq) as last from (${source} limit @most) as walked`)
  return (parameters, limit) => {
    const bounded = { ...parameters, most: MOST_ROWS_READ }
    // One more than is wanted tells whether there is a next page.
    const seen = find.all({ ...bounded, limit: limit + 1 })
    const found = seen.slice(0, limit)
    if (seen.length > limit) return { found, next: String(found.at(-1)) }
    const end = findEnd.get(bounded)
    return { found, next: end === undefined || end.read < MOST_ROWS_READ ? null : String(end.last) }
  }
}
