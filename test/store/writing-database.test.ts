/**
 * What is sent, and in which order: before a savepoint all that came before it, since undoing a verb forgets what was not
 * sent; behind a commit nothing, since what fails there would undo nothing.
 */
import t, { type Test } from 'tap'
import type { BlockingWire } from '../../src/store/postgresql/blocking-wire.ts'
import type { RowNumbers } from '../../src/store/postgresql/row-numbers.ts'
import { createWritingDatabase } from '../../src/store/postgresql/writing-database.ts'

t.test('a verb that is undone takes nothing of the one before it along', async (t) => {
  const { sent, run } = openWriter(t)
  for (const sql of ['begin immediate', 'update before', 'savepoint verb', 'update within', 'rollback to verb'])
    run(sql)
  t.same(
    sent.filter((text) => !/begin|pg_prepared_statements/.test(text)),
    ['update before', 'savepoint verb', 'rollback to verb'],
  )
})

t.test('types of a first statement are asked for before the commit, and each hears its own answer', async (t) => {
  const { sent, run } = openWriter(t)
  run('begin immediate')
  const changed = run('update messages set dot_sent = ? where seq = ?', 1, 7)
  run('commit')
  t.match(sent.slice(-2), [/pg_prepared_statements/, /^commit$/])
  const place = sent.findIndex((text) => text.startsWith('update messages'))
  t.ok(place >= 0 && place < sent.length - 2)
  t.equal(changed.changes, place + 1)
})

/** A wire that answers each statement with its place among all that were sent, as the number of rows. */
function openWriter(t: Test) {
  const sent: string[] = []
  const wire: BlockingWire = {
    granted: { session: null, lastCommit: null },
    ask(line, statements) {
      t.equal(line, 'write')
      return statements.map(({ text }) => ({ fields: [], rows: [], count: sent.push(text) }))
    },
    close: () => {},
  }
  const rowNumbers: RowNumbers = { keyOf: () => undefined, beginAfter: () => {}, next: () => 1, taken: () => null }
  const writer = createWritingDatabase({ wire, rowNumbers, nodeId: 'a', erasureKey: undefined, onCommit: () => {} })
  return { sent, run: (sql: string, ...values: unknown[]) => writer.prepare(sql).run(...values) }
}
