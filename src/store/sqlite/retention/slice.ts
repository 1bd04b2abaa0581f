/** How much one call of retention does: so many rows at most, and so long: it shares the store with everybody. */

/** Well below the 50 ms of store/README.md "Retention": somebody's acceptance waits meanwhile. */
const MOST_MILLISECONDS = 12

interface Slice {
  hasRoom(): boolean
  /** Rows that were looked at or removed. */
  note(rows: number): void
}

export function createSlice(mostRows: number): Slice {
  const endsAt = performance.now() + MOST_MILLISECONDS
  let left = mostRows
  return {
    hasRoom: () => left > 0 && performance.now() < endsAt,
    note(rows) {
      left -= rows
    },
  }
}
