/**
 * Numbers of new rows. Who writes counts on from the greatest numbers that rows of a table had when its transaction
 * began: they rise in the order of commits, whoever of the nodes makes them. A transaction that is undone leaves its
 * numbers to the next one.
 */
import type { BlockingWire } from './blocking-wire.ts'

export interface RowNumbers {
  /** The column that rows of this table are numbered in; undefined: they are not. */
  keyOf(table: string): string | undefined
  /** A transaction begins: `numbers` waits for what `begin_writing` answers. */
  beginAfter(numbers: () => string): void
  next(table: string): number
  /** What this transaction has numbered, for its commit; null: nothing. */
  taken(): { turn: number; rows: string } | null
}

interface Numbers {
  turn: number
  /** By table. */
  rows: Record<string, number>
}

/** Of tables that no commit has numbered rows of yet. */
const OTHERS = '*'
const FIND_KEYS = `
  select tables.relname, columns.attname
  from pg_index as indexes
  join pg_class as tables on tables.oid = indexes.indrelid
  join pg_attribute as columns on columns.attrelid = tables.oid and columns.attnum = indexes.indkey[0]
  where indexes.indisprimary and indexes.indnatts = 1 and columns.atttypid = 'int8'::regtype
    and tables.relnamespace = current_schema()::regnamespace`

export function createRowNumbers(wire: BlockingWire): RowNumbers {
  const [found] = wire.ask('write', [{ name: 'row_keys', text: FIND_KEYS, values: [] }])
  const keys = new Map(found?.rows.map(([table, column]) => [String(table), String(column)]))
  let numbers: Numbers | null = null
  let ask = (): string => '{}'
  return {
    keyOf: (table) => keys.get(table),
    beginAfter(asked) {
      numbers = null
      ask = asked
    },
    next(table) {
      numbers ??= JSON.parse(ask()) as Numbers
      const { rows } = numbers
      const number = (rows[table] ?? rows[OTHERS] ?? 0) + 1
      rows[table] = number
      return number
    },
    taken: () => (numbers === null ? null : { turn: numbers.turn + 1, rows: JSON.stringify(numbers.rows) }),
  }
}
