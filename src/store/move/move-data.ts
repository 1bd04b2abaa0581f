/**
 * Moves all data of a stopped server from one engine to the other (systemd/README.md "PostgreSQL").
 *
 * 1. Both are opened: their schemas are migrated, and nobody else works with either. A source without data, or with a
 *    half of it that another move left, is none.
 * 2. The target is marked, with the epoch of the source. Only an empty one, or one with such a mark, is taken.
 * 3. Table by table, rows move in the order of their keys, some in each transaction. What a move that was killed had
 *    committed is the beginning of each table: the next one goes on behind its last row, so nothing is there twice. A
 *    source that was started meanwhile has another epoch, and moves from the beginning.
 * 4. Every row of both is read again, compared and added to a checksum.
 * 5. One transaction copies `meta` and takes the mark away. Until then no server starts on the target.
 *
 * Undelivered mail is held where it arrives, from its first moment on. PostgreSQL keeps no U+0000: it becomes U+FFFD.
 * The source stays as it is. Throws ProcessExit, with a sentence.
 */
import { createHash } from 'node:crypto'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import type { Database } from '../engine/database.ts'
import type { OpenEngine } from '../engine/open-engine.ts'
import type { StoreLocation } from '../store-location.ts'
import { MOVE_MARK, openEngine, requireWhole } from '../thread/open-engine.ts'
import { COUNT_HELD } from '../verbs/queue/waiting-rows.ts'
import { movedTables, type MovedTable } from './moved-tables.ts'
import { batchesOf, valuesOf, type Row, type Value } from './table-rows.ts'

export interface MoveProgress {
  step: 'moving' | 'comparing'
  table: string
  rows: number
  /** Of this table; of PostgreSQL an estimate. */
  total: number
}

interface MoveOptions {
  from: StoreLocation
  to: StoreLocation
  /** What is in the target is nobody's. */
  isOwn?: boolean
  onProgress: (progress: MoveProgress) => void
}

export interface MoveSummary {
  /** By table. */
  counts: Record<string, number>
  /** SHA-256 of all rows in order, the same on both sides. */
  checksum: string
  /** Undelivered messages. */
  held: number
  /** Of these, by an operator where they come from. */
  heldBefore: number
  isResumed: boolean
}

interface Ends extends MoveOptions {
  source: OpenEngine
  target: OpenEngine
  tables: readonly MovedTable[]
}

export async function moveData(options: MoveOptions): Promise<MoveSummary> {
  const { from, to } = options
  const source = await openEngine(from)
  try {
    requireData(source)
    const target = await openEngine(to)
    try {
      const tables = movedTables((from.engine === 'sqlite' ? source : target).reader)
      return move({ ...options, source, target, tables })
    } finally {
      target.close()
    }
  } finally {
    source.close()
  }
}

/** A half, or nothing at all, would take the place of what the target's side has. */
function requireData(source: OpenEngine): void {
  requireWhole(source)
  if ((metaOf(source.reader, 'epoch') ?? 0) > 0) return
  const sentence = 'no Sternpost has worked with the database that the data is to come from: is storage.url right?'
  throw new ProcessExit(EXIT.configuration, sentence)
}

function move(ends: Ends): MoveSummary {
  const { source, target, tables } = ends
  const { engine } = ends.to
  const isResumed = begin(ends)
  for (const table of tables) {
    moveRows(table, ends)
    if (engine === 'postgres') inTransaction(target.writer, () => target.writer.prepare(`analyze ${table.name}`).run())
  }
  const compared = compareAll(ends)
  if (engine === 'postgres') numberAbove(source.reader, ends)
  finish(ends)
  const heldBefore = source.reader.prepare<[], number>(COUNT_HELD).pluck().get() ?? 0
  return { ...compared, heldBefore, isResumed }
}

/** Returns whether some of it was there already. */
function begin({ source, target: { reader, writer }, tables, to: { engine }, isOwn = false }: Ends): boolean {
  const epoch = metaOf(source.reader, 'epoch') ?? 0
  const mark = metaOf(reader, MOVE_MARK)
  if (mark === epoch) return true
  // Of a new schema these have rows.
  const filled = tables.find(({ name }) => name !== 'routes' && reader.prepare(`select 1 from ${name} limit 1`).get())
  if (!isOwn && mark === undefined && filled !== undefined) {
    const sentence = `the target has data in its table ${filled.name}: give an empty database`
    throw new ProcessExit(EXIT.configuration, sentence)
  }
  const names = tables.map(({ name }) => name)
  inTransaction(writer, () => {
    if (engine === 'postgres') writer.prepare(`truncate ${names.join(', ')}`).run()
    else for (const name of names.toReversed()) writer.prepare(`delete from ${name}`).run()
    writer.prepare(CLEAR_META).run()
    writer.prepare<[string, number]>('insert into meta (name, value) values (?, ?)').run(MOVE_MARK, epoch)
  })
  return false
}

const CLEAR_META = `delete from meta where name <> 'changes'`
const metaOf = (database: Database, name: string): number | undefined =>
  database.prepare<[string], number>('select value from meta where name = ?').pluck().get(name)

function moveRows(table: MovedTable, { source, target, from, to, onProgress }: Ends): void {
  const { writer } = target
  const { name, columns, key } = table
  const total = countOf(source.reader, table, from)
  const newest = key.map((column) => `${column} desc`).join(', ')
  const last = target.reader.prepare<[], Row>(`select ${key.join(', ')} from ${name} order by ${newest} limit 1`).get()
  let rows = last === undefined ? 0 : countOf(target.reader, table, to)
  const insert = writer.prepare<Value[]>(
    `insert into ${name} (${columns.join(', ')}) values (${columns.map(() => '?').join(', ')})`,
  )
  for (const batch of batchesOf(source.reader, table, last)) {
    inTransaction(writer, () => {
      for (const row of batch) insert.run(...valuesOf(row, columns))
    })
    // The log of SQLite is emptied here alone.
    target.afterGroup()
    rows += batch.length
    onProgress({ step: 'moving', table: name, rows, total })
  }
}

/** A large table takes PostgreSQL too long to count. */
function countOf(database: Database, { name }: MovedTable, { engine }: StoreLocation): number {
  const estimate = `select max(reltuples, 0)::bigint from pg_class where oid = to_regclass('${name}')`
  const text = engine === 'postgres' ? estimate : `select count(*) from ${name}`
  return database.prepare<[], number>(text).pluck().get() ?? 0
}

function compareAll({ source, target, tables, onProgress }: Ends): Omit<MoveSummary, 'isResumed' | 'heldBefore'> {
  const hash = createHash('sha256')
  const counts: Record<string, number> = {}
  let held = 0
  for (const table of tables) {
    const { name } = table
    const found = rowsOf(target.reader, table)
    let rows = 0
    for (const batch of batchesOf(source.reader, table)) {
      for (const row of batch) {
        const text = textOf(row, table)
        const { value } = found.next()
        if (value === undefined || textOf(value, table) !== text) return differ(table, row, target.writer)
        hash.update(text)
        // One that ended while it was held keeps the word.
        if (name === 'messages' && row['state'] === 'waiting') held += 1
      }
      rows += batch.length
      onProgress({ step: 'comparing', table: name, rows, total: rows })
    }
    if (found.next().done !== true) return differ(table, undefined, target.writer)
    counts[name] = rows
  }
  return { counts, checksum: hash.digest('hex'), held }
}

function* rowsOf(database: Database, table: MovedTable): Generator<Row, undefined> {
  for (const batch of batchesOf(database, table)) yield* batch
}

function textOf(row: Row, { name, columns }: MovedTable): string {
  const values = valuesOf(row, columns).map((value) => {
    if (typeof value === 'string') return value.replaceAll('\0', '\uFFFD')
    return value instanceof Uint8Array ? { bytes: Buffer.from(value).toString('base64') } : value
  })
  return JSON.stringify([name, values])
}

/** The next move begins anew. */
function differ({ name, key }: MovedTable, row: Row | undefined, writer: OpenEngine['writer']): never {
  inTransaction(writer, () =>
    writer.prepare<[number, string]>('update meta set value = ? where name = ?').run(-1, MOVE_MARK),
  )
  const place = row === undefined ? '' : ` from ${JSON.stringify(key.map((column) => row[column]))} on`
  const sentence = `the rows of ${name} are not the same on both sides${place}; nothing is in force. Move again: from the beginning`
  throw new ProcessExit(EXIT.disk, sentence)
}

function numberAbove(source: Database, { target, tables }: Ends): void {
  const numbers = tables
    .filter(({ isNumbered }) => isNumbered)
    .map(({ name, key }) => source.prepare<[], number>(`select max(${key[0]}) from ${name}`).pluck().get() ?? 0)
  const raise = target.writer.prepare<[string]>(`
    update last_commits set turn = (select max(turn) + 1 from last_commits), last_rows = ? where node_id = ''`)
  inTransaction(target.writer, () => raise.run(JSON.stringify({ '*': Math.max(0, ...numbers) })))
}

/** Words of subjects are found from the beginning again. */
const LEFT_OUT = [MOVE_MARK, 'changes', 'indexed_content']

function finish({ source, target: { writer } }: Ends): void {
  const rows = source.reader.prepare<[], { name: string; value: number }>('select name, value from meta').all()
  const insert = writer.prepare<[string, number]>('insert into meta (name, value) values (?, ?)')
  inTransaction(writer, () => {
    writer.prepare(CLEAR_META).run()
    for (const { name, value } of rows) if (!LEFT_OUT.includes(name)) insert.run(name, value)
  })
}

function inTransaction(writer: OpenEngine['writer'], work: () => unknown): void {
  writer.prepare('begin immediate').run()
  try {
    work()
    writer.prepare('commit').run()
  } catch (thrown) {
    if (writer.inTransaction) writer.prepare('rollback').run()
    throw thrown
  }
}
