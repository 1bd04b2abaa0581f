/** The tables that move, as SQLite describes them: both engines have the same, with the same columns. */
import type { Database } from '../engine/database.ts'

export interface MovedTable {
  name: string
  columns: readonly string[]
  key: readonly string[]
  /** Its rows are numbered: the next one has a number above all. */
  isNumbered: boolean
}

/**
 * Moved otherwise: `meta` comes last, in one transaction with the end of the move; words of subjects are found anew. Nodes
 * are those of where they work.
 */
const FIND_TABLES = `
  select name
  from sqlite_master
  where type = 'table' and name not in ('meta', 'nodes', 'ip_owners', 'last_commits') and name not like 'sqlite%' and name not like 'subjects%'
  order by name`
/** Numbered by the number of a content. */
const COMPOSED = 'content_parts'

interface ColumnRow {
  name: string
  type: string
  pk: number
}

/** Each behind those that its rows name. */
export function movedTables(sqlite: Database): MovedTable[] {
  const names = sqlite.prepare<[], string>(FIND_TABLES).pluck().all()
  const findParents = sqlite.prepare<[string], string>('select "table" from pragma_foreign_key_list(?)').pluck()
  // Without columns that are computed.
  const findColumns = sqlite.prepare<[string], ColumnRow>('select name, type, pk from pragma_table_info(?)')
  const placed = new Set<string>()
  const place = (name: string): void => {
    if (placed.has(name)) return
    for (const parent of findParents.all(name)) if (parent !== name) place(parent)
    placed.add(name)
  }
  for (const name of names) place(name)
  return [...placed].map((name) => {
    const columns = findColumns.all(name)
    const ofKey = columns.filter(({ pk }) => pk > 0).toSorted((left, right) => left.pk - right.pk)
    return {
      name,
      columns: columns.map((column) => column.name),
      key: ofKey.map((column) => column.name),
      isNumbered: ofKey.length === 1 && ofKey[0]?.type.toUpperCase() === 'INTEGER' && name !== COMPOSED,
    }
  })
}
