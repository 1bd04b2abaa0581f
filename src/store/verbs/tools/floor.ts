/**
 * Where a walk over an index begins, so that it does not pass what has left the index since the last one. SQLite removes
 * such entries at once; PostgreSQL keeps them until a vacuum, and for as long as an old snapshot may see them.
 *
 * A floor is a hint. Below it a row may stand that a transaction left when it was undone, or that another process wrote
 * late: so a floor counts a second after it was found, and is forgotten each minute. Whoever walks finds such a row then.
 */
import { MINUTE, SECOND } from '../../../base/clock.ts'

const TRUSTED_AFTER = SECOND
const FORGOTTEN_AFTER = MINUTE

export interface Floor {
  /** The walk begins here. */
  from(now: number): number
  /** The walk found this one first. */
  note(first: number, now: number): void
}

export function createFloor(): Floor {
  let floor = 0
  let since = -Infinity
  let found: { first: number; at: number } | null = null
  return {
    from(now) {
      const age = now - since
      if (age < 0 || age > FORGOTTEN_AFTER) {
        floor = 0
        since = now
        found = null
      }
      if (found !== null && now - found.at > TRUSTED_AFTER) {
        floor = found.first
        found = null
      }
      return floor
    },
    note(first, now) {
      found ??= { first, at: now }
    },
  }
}
