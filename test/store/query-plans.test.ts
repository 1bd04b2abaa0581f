/**
 * No statement of the store walks through a table that grows with the mail: every statement that the verbs prepare is
 * shown to SQLite's planner.
 */
import type { Database } from 'better-sqlite3'
import t from 'tap'
import type { Test } from 'tap'
import { openDatabase } from '../../src/store/sqlite/database.ts'
import { createReadVerbs, createWriteVerbs } from '../../src/store/sqlite/verbs.ts'
import { locationIn } from './sqlite-support.ts'

/** Tables with a few rows, whatever the load; json_each is a list that a verb was given. */
const SMALL_TABLES = ['pools', 'lanes', 'webhook_endpoints', 'domains', 'meta', 'json_each']

// `SCAN table` or `SCAN table USING …`: the table.
const SCAN = /^SCAN (\w+)/
// The statements that read or change rows, as opposed to pragmas and transaction control.
const ROWS = /^\s*(select|insert|update|delete)\b/

function planOf(database: Database, statement: string): string[] {
  const nulls = statement.split('?').slice(1).map(() => null)
  const explain = database.prepare<unknown[], { detail: string }>(`explain query plan ${statement}`)
  return explain.all(...nulls).map(({ detail }) => detail)
}

/** Lines of the plan that cost more with every row: a walk through a whole table, a sort. */
function costlySteps(database: Database, statement: string): string[] {
  return planOf(database, statement).filter((detail) => {
    const scanned = SCAN.exec(detail)?.[1]
    return detail.includes('TEMP B-TREE') || (scanned !== undefined && !SMALL_TABLES.includes(scanned))
  })
}

/** An empty database, and every statement that the verbs prepare. */
function prepareAll(t: Test): { database: Database; statements: string[] } {
  const opened = openDatabase(locationIn(t.testdir({})))
  t.teardown(() => opened.close())
  const statements: string[] = []
  const recording = (database: Database): Database =>
    new Proxy(database, {
      get(target, property) {
        if (property !== 'prepare') return Reflect.get(target, property)
        return (statement: string) => {
          if (ROWS.test(statement)) statements.push(statement)
          return target.prepare(statement)
        }
      },
    })
  createWriteVerbs({ ...opened, writer: recording(opened.writer) })
  createReadVerbs({ ...opened, reader: recording(opened.reader) })
  return { database: opened.writer, statements }
}

t.test('every statement finds its rows by an index', async (t) => {
  const { database, statements } = prepareAll(t)
  t.ok(statements.length > 50, `${statements.length} statements`)
  for (const statement of statements) t.same(costlySteps(database, statement), [], statement.trim())
  // These are the mistakes the test is for.
  for (const planted of [
    `select seq from messages where state = 'waiting' order by created_at`,
    `select seq from messages where state = 'waiting' and pool_id = ? order by expires_at`,
    `update messages set lease_until = ? where lease_epoch = ?`,
    'select body from events where kind = ?',
  ]) {
    t.not(costlySteps(database, planted).length, 0, planted)
  }
})

t.test('due, expiring and leased rows are found by the partial indexes made for them', async (t) => {
  const { database, statements } = prepareAll(t)
  const wanted: [statement: RegExp, step: string][] = [
    [/expires_at > \?\s+order by messages\.next_at/, 'INDEX messages_due (pool_id=? AND next_at<?)'],
    [/^select min\(next_at\) from messages/, 'INDEX messages_due (pool_id=?)'],
    [/from messages\s+where state = 'waiting' and expires_at <= \?/, 'INDEX messages_expiring (expires_at<?)'],
    [/where state = 'sending' and lease_until <= \?/, 'INDEX messages_leased (lease_until<?)'],
    [/where state = 'sending' and lease_until < \? and lease_epoch/, 'INDEX messages_leased (lease_until<?)'],
    [/deliveries\.state = 'pending' and deliveries\.endpoint_id = \? and deliveries\.next_at/,
      'INDEX webhook_deliveries_due (endpoint_id=? AND next_at<?)'],
    [/from messages\s+where state = 'waiting' and lane_id = \? and seq/,
      'INDEX messages_of_lane (lane_id=? AND rowid<?)'],
    [/from domains\s+where removed_at is null and next_check_at/, 'INDEX domains_due (next_check_at<?)'],
    [/from domains where name = \? and removed_at is null/, 'INDEX domains_living (name=?)'],
    [/lease_epoch is not null and state = 'pending'/, 'INDEX webhook_deliveries_leased'],
  ]
  for (const [pattern, step] of wanted) {
    const statement = statements.find((text) => pattern.test(text))
    if (statement === undefined) {
      t.fail(`no statement like ${pattern}`)
      continue
    }
    t.ok(planOf(database, statement)[0]?.includes(step), `${step}: ${planOf(database, statement).join(', ')}`)
  }
})
