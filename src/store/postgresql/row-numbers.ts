/**
 * Numbers of new rows, from blocks that are taken of the sequence `row_numbers`: rising within a table, with gaps after
 * a restart. A transaction that is undone leaves its numbers unused.
 */
import type { BlockingWire } from './blocking-wire.ts'

/** As the sequence rises by. */
const BLOCK = 1_000

export interface RowNumbers {
  /** The column that rows of this table are numbered in; undefined: they are not. */
  keyOf(table: string): string | undefined
  next(table: string): number
}

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
  const left = new Map<string, { next: number; end: number }>()

  const takeBlock = (): { next: number; end: number } => {
    const [block] = wire.ask('write', [{ name: 'row_block', text: `select nextval('row_numbers')`, values: [] }])
    const next = Number(block?.rows[0]?.[0])
    return { next, end: next + BLOCK }
  }

  return {
    keyOf: (table) => keys.get(table),
    next(table) {
      let block = left.get(table)
      if (block === undefined || block.next === block.end) left.set(table, (block = takeBlock()))
      return block.next++
    },
  }
}
