/**
 * The schemas of both engines are the same: each table of SQLite with its columns and their kinds, what must be there,
 * and what is unique. And every statement of the verbs is one that PostgreSQL prepares.
 */
import Sqlite from 'better-sqlite3'
import pg from 'pg'
import t from 'tap'
import { createDatabaseSize } from '../../src/store/sqlite/engine/file-size.ts'
import { openDatabase } from '../../src/store/sqlite/engine/database.ts'
import { toPostgres } from '../../src/store/postgresql/dialect.ts'
import { createReadVerbs, createWriteVerbs } from '../../src/store/verbs/verbs.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { postgresLocation } from './postgres-support.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'

/** What PostgreSQL keeps a kind of SQLite's in. */
const KINDS: Readonly<Record<string, readonly string[]>> = {
  INTEGER: ['bigint', 'smallint'],
  TEXT: ['text'],
  BLOB: ['bytea'],
  REAL: ['double precision'],
}
const OF_POSTGRES_ALONE = ['schema_version']
const WORDS = /^subjects/

interface Column {
  table: string
  name: string
  kind: string
  isNeeded: number
}

t.test('both engines', { skip: skipWithoutPostgres }, async (t) => {
  const cluster = await startPostgres(t)
  const url = cluster.url(await cluster.createDatabase())
  await (await openTestStore(postgresLocation(url))).store.close()
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  const location = locationIn(t.testdir({}))
  const { writer, reader, close } = openDatabase(location)
  t.teardown(close)

  t.test('have the same tables and columns', async (t) => {
    const ours = new Sqlite(`${location.folder}/sternpost.db`, { readonly: true })
    t.teardown(() => void ours.close())
    const wanted = ours
      .prepare<[], Column>(
        `select tables.name as "table", columns.name, columns.type as kind, columns."notnull" or columns.pk as isNeeded
        from sqlite_master as tables, pragma_table_xinfo(tables.name) as columns
        where tables.type = 'table' order by 1, 2`,
      )
      .all()
      .filter(({ table }) => !WORDS.test(table))
    const { rows } = await client.query<Column>(
      `select table_name as "table", column_name as name, data_type as kind, (is_nullable = 'NO')::int as "isNeeded"
      from information_schema.columns where table_schema = 'public'`,
    )
    const found = rows.filter(({ table }) => !WORDS.test(table) && !OF_POSTGRES_ALONE.includes(table))
    const place = ({ table, name }: Column): string => `${table}.${name}`
    t.same(found.map(place).sort(), wanted.map(place).sort())
    for (const column of wanted) {
      const kind = found.find((each) => place(each) === place(column))
      t.ok(KINDS[column.kind]?.includes(kind?.kind ?? ''), `${place(column)} is ${column.kind} and ${kind?.kind}`)
      // SQLite counts a generated column as one that may be empty.
      if (column.name !== 'is_retry') t.equal(kind?.isNeeded, Number(column.isNeeded > 0), `${place(column)} is needed`)
    }
  })

  t.test('PostgreSQL compresses bodies', async (t) => {
    const html = Buffer.from('<p style="margin:0">Your order</p>\n'.repeat(1_000))
    await client.query('insert into content_parts (part_key, bytes) values (1, $1)', [html])
    const { rows } = await client.query(
      'select bytes, pg_column_size(bytes) as kept, pg_column_compression(bytes) as by from content_parts',
    )
    await client.query('delete from content_parts')
    t.match(rows, [{ bytes: html, by: 'lz4' }])
    t.ok(rows[0].kept < html.length / 4)
  })

  t.test('prepare the same statements', async (t) => {
    const statements = new Set<string>()
    const recording = (database: Sqlite.Database): Sqlite.Database =>
      new Proxy(database, {
        get(target, property) {
          if (property !== 'prepare') return Reflect.get(target, property)
          return (statement: string) => {
            statements.add(statement)
            return target.prepare(statement)
          }
        },
      })
    createWriteVerbs({ writer: recording(writer), giveBackPages: () => 0 })
    createReadVerbs({ reader: recording(reader), databaseSize: createDatabaseSize(reader) })
    t.ok(statements.size > 400)
    for (const statement of statements) {
      const { text } = toPostgres(statement, () => undefined)
      await t.resolves(client.query(`prepare asked as ${text}`), text)
      await client.query('deallocate asked').catch(() => undefined)
    }
  })
})
