/**
 * A walk through rows that are ordered by age, from the oldest on: each that is old enough is looked at once, and the
 * walk is over at the first that is too young. Those of a time ahead are stepped over (test/README.md "Clock"). It ends
 * early when its slice is full, with the place to go on from.
 */
import type { ForgetRequest, ForgetStep } from '../../records/retention-records.ts'

const MOST_MILLISECONDS = 12

/** Rising numbers have, as far as it matters, rising times. */
export interface AgedRow {
  seq: number
  /** Unix milliseconds. */
  at: number
}

/** `remove` returns how many rows went: 0 for one that must stay. */
export function walkOldest<Row extends AgedRow>(
  { before, now, after, limit }: ForgetRequest,
  findNext: { get(after: number): Row | undefined },
  remove: (row: Row) => number,
): ForgetStep {
  const slice = createSlice(limit)
  let removed = 0
  let position = after
  while (slice.hasRoom()) {
    const row = findNext.get(position)
    if (row === undefined || isTooYoung(row.at, { before, now })) return { removed, next: null }
    position = row.seq
    const gone = row.at < before ? remove(row) : 0
    removed += gone
    slice.note(1 + gone)
  }
  return { removed, next: position }
}

/** Nothing behind it can be over. */
export function isTooYoung(at: number, { before, now }: Pick<ForgetRequest, 'before' | 'now'>): boolean {
  return at >= before && at <= now
}

/** How much one call of retention does: so many rows at most, and so long: it shares the store with everybody. */
export function createSlice(mostRows: number) {
  const endsAt = performance.now() + MOST_MILLISECONDS
  let left = mostRows
  return {
    hasRoom: () => left > 0 && performance.now() < endsAt,
    /** Rows that were looked at or removed. */
    note(rows: number): void {
      left -= rows
    },
  }
}
