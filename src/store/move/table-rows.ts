/** The rows of a table in the order of its key, some at a time, as they are to be where they move to. */
import type { Database } from '../engine/database.ts'
import { HELD_UNTIL } from '../records/queue-records.ts'
import type { MovedTable } from './moved-tables.ts'

export type Value = string | number | Uint8Array | null
export type Row = Record<string, Value>

const FIRST_LIMIT = 16
const MOST_ROWS = 2_000
/** Of a batch; the next one is larger below half of it. */
const BATCH_BYTES = 4 * 2 ** 20
const BYTES_OF_A_NUMBER = 8

/** Some at a time, by what the last ones weighed. `after`: begins behind the row with this key. */
export function* batchesOf(database: Database, { name, columns, key }: MovedTable, after?: Row): Generator<Row[]> {
  const select = `select ${columns.join(', ')} from ${name}`
  const order = `order by ${key.join(', ')} limit ?`
  const places = key.map(() => '?').join(', ')
  const first = database.prepare<[number], Row>(`${select} ${order}`)
  const behind = database.prepare<Value[], Row>(`${select} where (${key.join(', ')}) > (${places}) ${order}`)
  let limit = FIRST_LIMIT
  let last = after
  for (;;) {
    const rows = last === undefined ? first.all(limit) : behind.all(...valuesOf(last, key), limit)
    if (rows.length === 0) return
    last = rows.at(-1)
    yield name === 'messages' ? rows.map(held) : rows
    const bytes = rows.flatMap(Object.values<Value>).reduce<number>((sum, value) => sum + sizeOf(value), 0)
    if (bytes > BATCH_BYTES) limit = Math.max(1, Math.floor(limit / 2))
    else if (bytes < BATCH_BYTES / 2) limit = Math.min(MOST_ROWS, 2 * limit)
  }
}

const sizeOf = (value: Value): number =>
  typeof value === 'number' || value === null ? BYTES_OF_A_NUMBER : value.length

export const valuesOf = (row: Row, columns: readonly string[]): Value[] => columns.map((column) => row[column] ?? null)

/**
 * As a restore holds mail (systemd/README.md "Restore"): where it comes from may be started once more, and send it.
 *
 *   waiting, sending -> waiting, held   until `sternpost queue release` or `drop`
 */
function held(row: Row): Row {
  if (row['state'] !== 'waiting' && row['state'] !== 'sending') return row
  const lease = { dot_sent: 0, lease_epoch: null, lease_until: null, claim: null }
  const possible_duplicate = row['state'] === 'sending' ? 1 : (row['possible_duplicate'] ?? null)
  return { ...row, ...lease, state: 'waiting', next_at: HELD_UNTIL, waiting_for: 'held', possible_duplicate }
}
