/**
 * Rows that wait for a connection: urgent ones first, but for one turn in five; else in the order in which they came.
 * Pure.
 */
import type { PathRow } from './connection-worker.ts'
import { createStreamTurns } from '../protocol/stream-turns.ts'

export interface RowQueue {
  add(row: PathRow): void
  /** In front of its like: it had its turn already. */
  putBack(row: PathRow): void
  take(): PathRow | undefined
  /** So many of those whose turn is soon. */
  soon(count: number): PathRow[]
  takeAll(): PathRow[]
  size(): number
  hasUrgent(): boolean
}

export function createRowQueue(): RowQueue {
  // A set keeps the order, and gives its first one away at no cost.
  const urgent = new Set<PathRow>()
  const others = new Set<PathRow>()
  const returned: PathRow[] = []
  const turns = createStreamTurns()

  function takeInTurn(): PathRow | undefined {
    const isUrgent = turns.isUrgentNext(urgent.size > 0, others.size > 0)
    return takeFirst(isUrgent ? urgent : others)
  }

  return {
    add: (row) => void (row.row.isUrgent ? urgent : others).add(row),
    putBack: (row) => void returned.push(row),
    take: () => takeReturned(returned, urgent.size) ?? takeInTurn(),
    soon(count) {
      const found: PathRow[] = []
      for (const rows of [returned, urgent, others]) {
        for (const row of rows) {
          if (found.length >= count) return found
          found.push(row)
        }
      }
      return found
    },
    takeAll() {
      const all = [...returned, ...urgent, ...others]
      returned.length = 0
      urgent.clear()
      others.clear()
      return all
    },
    size: () => returned.length + urgent.size + others.size,
    hasUrgent: () => urgent.size > 0 || returned.some(({ row }) => row.isUrgent),
  }
}

/** One that is not urgent lets those that are go first. */
function takeReturned(returned: PathRow[], urgent: number): PathRow | undefined {
  const index = returned.findIndex(({ row }) => row.isUrgent || urgent === 0)
  return index < 0 ? undefined : returned.splice(index, 1)[0]
}

function takeFirst(rows: Set<PathRow>): PathRow | undefined {
  for (const row of rows) {
    rows.delete(row)
    return row
  }
  return undefined
}
