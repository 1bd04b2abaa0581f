/** Where a verb runs in a savepoint, what came before it is sent before it: undoing the verb forgets what was not. */
import t from 'tap'
import type { PostgresDatabase } from '../../src/store/postgresql/postgres-database.ts'
import type { RowNumbers } from '../../src/store/postgresql/row-numbers.ts'
import { createWritingDatabase } from '../../src/store/postgresql/writing-database.ts'

t.test('a verb that is undone takes nothing of the one before it along', async (t) => {
  let waiting: string[] = []
  const sent: string[] = []
  const send = (text: string) => {
    waiting.push(text)
    return { answer: () => ({ fields: [], rows: [], count: 1, command: '' }) }
  }
  const database: PostgresDatabase = {
    prepare: (sql) =>
      ({ run: () => (send(sql), { changes: 1, lastInsertRowid: 0 }) }) as unknown as ReturnType<typeof writer.prepare>,
    send,
    flush: () => void sent.push(...waiting.splice(0)),
    forget: () => void (waiting = []),
  } as PostgresDatabase
  const rowNumbers: RowNumbers = { keyOf: () => undefined, beginAfter: () => {}, next: () => 1, taken: () => null }
  const granted = { session: null, lastCommit: null }
  const writer = createWritingDatabase({ database, granted, rowNumbers, nodeId: 'a' })
  const run = (sql: string): unknown => writer.prepare(sql).run()
  for (const sql of ['begin immediate', 'update before', 'savepoint verb', 'update within', 'rollback to verb'])
    run(sql)
  t.same(
    sent.filter((text) => !text.includes('begin')),
    ['update before', 'savepoint verb', 'rollback to verb'],
  )
})
