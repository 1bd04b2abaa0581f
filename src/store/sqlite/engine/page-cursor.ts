/**
 * Pages of rows that are listed by their falling number: a cursor is the number of the last row that was looked at, so
 * a row that is added meanwhile moves no other one.
 *
 * Throws ServiceError invalid_request for a cursor that is none.
 */
import { ServiceError } from '../../../base/errors.ts'

// The number of a row, from 1 on, short enough to be exact.
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
