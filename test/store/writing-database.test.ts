/** Where a verb runs in a savepoint, what came before it is sent before it: undoing the verb forgets what was not. */
import t from 'tap'
import type { BlockingWire } from '../../src/store/postgresql/blocking-wire.ts'
import type { RowNumbers } from '../../src/store/postgresql/row-numbers.ts'
import { createWritingDatabase } from '../../src/store/postgresql/writing-database.ts'

t.test('a verb that is undone takes nothing of the one before it along', async (t) => {
  const sent: string[] = []
  const wire: BlockingWire = {
    granted: { session: null, lastCommit: null },
    ask(line, statements) {
      t.equal(line, 'write')
      sent.push(...statements.map(({ text }) => text))
      return statements.map(() => ({ fields: [], rows: [], count: 1 }))
    },
    close: () => {},
  }
  const rowNumbers: RowNumbers = { keyOf: () => undefined, beginAfter: () => {}, next: () => 1, taken: () => null }
  const writer = createWritingDatabase({ wire, rowNumbers, nodeId: 'a', erasureKey: undefined })
  const run = (sql: string): unknown => writer.prepare(sql).run()
  for (const sql of ['begin immediate', 'update before', 'savepoint verb', 'update within', 'rollback to verb'])
    run(sql)
  t.same(
    sent.filter((text) => !/begin|pg_prepared_statements/.test(text)),
    ['update before', 'savepoint verb', 'rollback to verb'],
  )
})
