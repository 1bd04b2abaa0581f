/**
 * What the operator does to everything that waits and fits a filter: one step of the walk at a time.
 *
 *   waiting -> waiting    retry, release: due now, but no scheduled message before its time
 *   waiting -> waiting    hold: until somebody releases it, or its lifetime ends
 *   waiting -> waiting    move: in another pool
 *   waiting -> canceled   drop: with its event; release, of an address that was erased since the backup was made
 *
 * Captured mail is never moved: it has one road.
 */
import type { Database } from '../../engine/database.ts'
import { unreachable } from '../../../base/errors.ts'
import { CAPTURE_POOL } from '../../../mail/simulator.ts'
import { HELD_UNTIL, type QueuedRows } from '../../records/queue-records.ts'
import type { QueueAction, QueueFilter } from '../../../mail/waiting-mail.ts'
import { createCanceling } from './cancel.ts'
import { createQueueNames, createQueuedTally, type QueuedTally } from './queue-names.ts'
import { createWaitingRowsWalk, type WaitingRow, type WalkPosition } from './waiting-rows.ts'
import { firstOfEach, oneColumn } from '../tools/statements.ts'
import { FIND_ERASED } from '../tools/stored-address.ts'

interface QueueActionRequest {
  filter: QueueFilter
  action: QueueAction
  now: number
  limit: number
  /** Only counts. */
  isDryRun: boolean
  after: WalkPosition | null
}

/** Rows that one step changes: each costs up to 50 µs. */
const MOST_CHANGED = 200

export function createQueueActionStep(
  database: Database,
): (request: QueueActionRequest) => { messages: number; queued: QueuedRows; next: WalkPosition | null } {
  const walk = createWaitingRowsWalk(database)
  const dueAt = createDueTime(database)
  const act = createRowActions(database)

  return ({ filter, action, now, limit, isDryRun, after }) => {
    const step = walk(filter, after)
    const changed = step.rows.filter((row) => isChanged(row, action, () => dueAt(row, now)))
    const most = isDryRun ? changed.length : Math.min(limit, MOST_CHANGED)
    const rows = changed.slice(0, most)
    const tally = createQueuedTally()
    if (!isDryRun) act(rows, action, now, tally)
    const last = rows.at(-1)
    const next = changed.length > most && last !== undefined ? { laneId: last.laneId, seq: last.seq } : step.next
    return { messages: rows.length, queued: tally.result(), next }
  }
}

/** Whether the action does anything to this row: repeated, it does not. */
function isChanged(row: WaitingRow, action: QueueAction, dueAt: () => number): boolean {
  const isHeld = row.waitingFor === 'held'
  switch (action.kind) {
    case 'retry':
      return !isHeld && row.nextAt > dueAt()
    case 'hold':
      return !isHeld
    case 'release':
      return isHeld
    case 'drop':
      return true
    case 'move':
      return row.pool !== action.pool && row.pool !== CAPTURE_POOL
    default:
      return unreachable(action)
  }
}

/** Now, or the start that the message was given. */
function createDueTime(database: Database): (row: WaitingRow, now: number) => number {
  const findStart = oneColumn(database)<[number], number | null>('select send_at from contents where content_id = ?')
  return ({ contentId }, now) => Math.max(now, findStart.get(contentId) ?? 0)
}

function createRowActions(database: Database) {
  const names = createQueueNames(database)
  const dueAt = createDueTime(database)
  const setTime = database.prepare<[number, string | null, number]>(`
    update messages set next_at = ?, waiting_for = ? where seq = ?`)
  // The IP that it kept is of the other pool, and may be of a node that sends nothing of this one.
  const setPool = database.prepare<[number, number]>(`
    update messages set pool_id = ?, keep_ip_until = null where seq = ?`)
  const cancel = createCanceling(database)
  const erasedAmong = createErasedCheck(database)
  const send = (rows: readonly WaitingRow[], now: number, tally: QueuedTally): void => {
    for (const row of rows) {
      const nextAt = dueAt(row, now)
      setTime.run(nextAt, null, row.seq)
      tally.add({ ...row, isRetry: row.isRetry === 1 }, row.recipientDomain, nextAt)
    }
  }

  return (rows: readonly WaitingRow[], action: QueueAction, now: number, tally: QueuedTally): void => {
    switch (action.kind) {
      case 'retry':
        return send(rows, now, tally)
      case 'release': {
        const erased = erasedAmong(rows)
        cancel([...erased], now)
        const others = rows.filter((row) => !erased.has(row))
        return send(others, now, tally)
      }
      case 'hold':
        for (const { seq } of rows) setTime.run(HELD_UNTIL, 'held', seq)
        return
      case 'move':
        for (const row of rows) {
          setPool.run(names.poolId(action.pool), row.seq)
          tally.add({ ...row, pool: action.pool, isRetry: row.isRetry === 1 }, row.recipientDomain, row.nextAt)
        }
        return
      case 'drop':
        cancel(rows, now)
        return
      default:
        unreachable(action)
    }
  }
}

/**
 * Whose addresses were erased: their mail is held where a restore brought it back, and their entry on the list, a hash,
 * is not looked for when mail is claimed.
 */
function createErasedCheck(database: Database): (rows: readonly WaitingRow[]) => Set<WaitingRow> {
  const findAny = oneColumn(database)<[], number>(FIND_ERASED)
  const find = oneColumn(database)<[string], number>(`
    select 1 from suppressions where address = erased_address(+?) and is_test = 0 and scope = 'all' limit 1`)
  return (rows) => {
    if (findAny.get() === undefined) return new Set()
    const found = firstOfEach(
      find,
      rows.map(({ recipient }) => [recipient]),
    )
    return new Set(rows.filter((_, index) => found[index] !== undefined))
  }
}
