/**
 * Pages of rows that are listed by their falling number: a cursor is the number of the last row that was looked at, so
 * a row that is added meanwhile moves no other one. Throws ServiceError invalid_request for a cursor that is none.
 */
import type { Database } from '../../engine/database.ts'
import { ServiceError } from '../../../base/errors.ts'
import { oneColumn } from './statements.ts'

/** Rows that one call looks at. */
export const MOST_ROWS_READ = 10_000
// The number of a row, short enough to be exact.
const CURSOR = /^[1-9]\d{0,14}$/

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

export type WalkParameters = Record<string, string | number | Buffer | null>

/** Keys of rows, falling, and the one to go on from; null: everything was looked at. */
export type RunWalk<Key> = (parameters: WalkParameters, limit: number) => { found: Key[]; next: Key | null }

/**
 * A walk through rows in the order of their falling key which looks at so many of them at most: so no search costs more
 * because a table is large. `source`: a select of the rows to look at, with `key` among its columns, ordered by falling
 * `key`. `condition`: what must hold for a row of it, named `walked`. Parameters are named; `limit` and `most` are the
 * walk's own.
 */
export function createWalk<Key>(database: Database, key: string, source: string, condition: string): RunWalk<Key> {
  const find = oneColumn(database)<[WalkParameters], Key>(`
    select ${key} from (${source} limit +@most) as walked where ${condition} limit +@limit`)
  const findEnd = database.prepare<[WalkParameters], { read: number; last: Key | null }>(`
    select count(*) as read, min(${key}) as last from (${source} limit +@most) as walked`)
  return (parameters, limit) => {
    const bounded = { ...parameters, most: MOST_ROWS_READ }
    // One more than is wanted tells whether there is a next page.
    const seen = find.all({ ...bounded, limit: limit + 1 })
    const found = seen.slice(0, limit)
    if (seen.length > limit) return { found, next: found.at(-1) ?? null }
    const end = findEnd.get(bounded)
    return { found, next: end === undefined || end.read < MOST_ROWS_READ ? null : end.last }
  }
}

/** The lowest number, up to `end`, whose next row `isMeant`: rows that are not stand before all that are. */
export function bisect<Row extends { seq: number }>(
  end: number,
  findNext: { get(from: number): Row | undefined },
  isMeant: (row: Row) => boolean,
): number {
  let low = 0
  let high = end
  while (low < high) {
    const middle = Math.floor((low + high) / 2)
    const row = findNext.get(middle)
    if (row === undefined || isMeant(row)) high = middle
    else low = row.seq + 1
  }
  return low
}
