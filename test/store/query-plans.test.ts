/**
 * No statement of the store walks through a table that grows with the mail: every statement that the verbs prepare is
 * shown to SQLite's planner.
 */
import type { Database } from 'better-sqlite3'
import t, { type Test } from 'tap'
import { openDatabase } from '../../src/store/sqlite/engine/database.ts'
import { createSqliteEngine } from '../../src/store/sqlite/sqlite-engine.ts'
import { createReadVerbs, createWriteVerbs } from '../../src/store/verbs/verbs.ts'
import { locationIn } from './sqlite-support.ts'

/**
 * Tables with a few rows, whatever the load; json_each is a list that a verb was given, and of unmatched reports only
 * the newest are kept. States of paths are read whole, once at the start. Counts that wait are added after a few verbs.
 * Certificates are one for each public name, read whole twice a minute.
 */
const SMALL_TABLES = [
  'pools',
  'lanes',
  'webhook_endpoints',
  'domains',
  'meta',
  'json_each',
  'unmatched_reports',
  'egress_ips',
  'path_states',
  'database_days',
  'waiting_counts',
  'people',
  'login_links',
  'sessions',
  'certificates',
  'nodes',
  'ip_owners',
]

// `SCAN table` or `SCAN table USING …`: the table.
const SCAN = /^SCAN (\w+)/
// A parameter with a name.
const NAMED = /@(\w+)/g
// The statements that read or change rows, as opposed to pragmas and transaction control.
const ROWS = /^\s*(select|insert|update|delete)\b/

function planOf(database: Database, statement: string): string[] {
  const nulls = statement
    .split('?')
    .slice(1)
    .map(() => null)
  const named = Object.fromEntries([...statement.matchAll(NAMED)].map(([, name]) => [name, null]))
  const explain = database.prepare<unknown[], { detail: string }>(`explain query plan ${statement}`)
  return explain.all(...nulls, named).map(({ detail }) => detail)
}

/** Lines of the plan that cost more with every row: a walk through a whole table, a sort. */
function costlySteps(database: Database, statement: string): string[] {
  return planOf(database, statement).filter((detail) => {
    // By number, or by words.
    if (/VIRTUAL TABLE INDEX \d+:./.test(detail)) return false
    const scanned = SCAN.exec(detail)?.[1]
    if (detail.includes('TEMP B-TREE')) return true
    return scanned !== undefined && !SMALL_TABLES.includes(scanned) && !isBounded(statement, scanned)
  })
}

/** A subselect of so many rows at most; its own steps are in the plan too. */
const isBounded = (statement: string, name: string): boolean =>
  new RegExp(`\\blimit (\\d+|\\+?@most|\\+?\\?)\\s*\\) as ${name}\\b`).test(statement)

/** An empty database, and every statement that the verbs prepare. */
function prepareAll(t: Test): { database: Database; statements: string[] } {
  const location = locationIn(t.testdir({}))
  const opened = openDatabase(location)
  const engine = createSqliteEngine(opened, location)
  t.teardown(() => opened.close())
  const statements: string[] = []
  const recording = (database: Database): Database =>
    new Proxy(database, {
      get(target, property) {
        if (property !== 'prepare') return Reflect.get(target, property)
        return (statement: string) => {
          if (ROWS.test(statement)) statements.push(statement.trim())
          return target.prepare(statement)
        }
      },
    })
  createWriteVerbs({ ...engine, writer: recording(opened.writer) })
  createReadVerbs({ ...engine, reader: recording(opened.reader) })
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
    'select seq from (select seq from messages where isp = ? order by seq desc limit ?) as walked',
  ]) {
    t.not(costlySteps(database, planted).length, 0, planted)
  }
})

t.test('due, expiring and leased rows are found by the partial indexes made for them', async (t) => {
  const { database, statements } = prepareAll(t)
  const wanted: [statement: RegExp, step: string][] = [
    [/from messages\s+where state = 'waiting' and expires_at <= \?/, 'INDEX messages_expiring (expires_at<?)'],
    [/where state = 'sending' and lease_until <= \?/, 'INDEX messages_leased (lease_until<?)'],
    [/where state = 'sending' and \(lease_until, seq\) >/, 'INDEX messages_leased (lease_until>'],
    [
      /state = 'pending' and endpoint_id = \+\? and is_behind = \+\? and next_at/,
      'INDEX webhook_deliveries_due (endpoint_id=? AND is_behind=? AND next_at>? AND next_at<?)',
    ],
    [
      /from messages\s+where state = 'waiting' and lane_id = \? and seq/,
      'INDEX messages_of_lane (lane_id=? AND rowid<?)',
    ],
    [/from domains\s+where removed_at is null and next_check_at/, 'INDEX domains_due (next_check_at<?)'],
    [/from domains where name = \? and removed_at is null/, 'INDEX domains_living (name=?)'],
    [
      /from suppressions where address = \+\? and is_test = \+\?/,
      'INDEX sqlite_autoindex_suppressions_1 (address=? AND is_test=?)',
    ],
    [/from idempotency_keys\s+where api_key_id/, 'INDEX sqlite_autoindex_idempotency_keys_1 (api_key_id=? AND key=?)'],
    [
      /^select seq, id, recipient, state, possible_duplicate.* where content_id/,
      'INDEX messages_of_content (content_id=?)',
    ],
    [/lease_epoch is not null and state = 'pending'/, 'INDEX webhook_deliveries_leased'],
    [/where event_seq = \? and endpoint_id = \? and id > \?/, 'INDEX webhook_deliveries_of_event (event_seq=?)'],
    [
      /deliveries\.state <> 'pending'\s+and deliveries\.id > \?/,
      'INDEX webhook_deliveries_ended (endpoint_id=? AND state=? AND id>? AND id<?)',
    ],
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

t.test('the dead letters of an endpoint are counted in the index of what has ended', (t) => {
  const { database, statements } = prepareAll(t)
  const counting = statements.filter((text) => text.includes('count(*)') && text.includes("state = 'failed'"))
  t.ok(counting.length >= 2, `${counting.length} statements`)
  for (const statement of counting) {
    const plan = planOf(database, statement).join('\n')
    t.match(plan, 'COVERING INDEX webhook_deliveries_ended (endpoint_id=? AND state=?)')
  }
  t.end()
})

t.test('no deliveries of an endpoint are counted without a bound', async (t) => {
  const { statements } = prepareAll(t)
  const counted = statements.flatMap((text) => text.match(/count\(\*\)[^)]*?from webhook_deliveries[^)]*/g) ?? [])
  t.ok(counted.length >= 4, `${counted.length} counts`)
  for (const each of counted) t.match(each, /limit/)
})

t.test('a row of the hot path is written without a table of its own', (t) => {
  const { database, statements } = prepareAll(t)
  const makesTable = (statement: string): boolean =>
    database
      .prepare<unknown[], { opcode: string }>(`explain ${statement}`)
      .all(
        ...statement
          .split('?')
          .slice(1)
          .map(() => null),
      )
      .some(({ opcode }) => opcode === 'OpenEphemeral')
  const added = /^\s*insert into (messages|contents|events|attempts|webhook_deliveries|webhook_attempts)\s.*\svalues\s/s
  const changed = /^\s*update (messages|webhook_deliveries)\s.*where (seq|delivery_seq) = \?[^(]*$/s
  const hot = statements.filter((text) => added.test(text) || changed.test(text))
  t.ok(hot.length > 10, `${hot.length} statements`)
  for (const statement of hot) t.notOk(makesTable(statement), statement.trim())
  // This is the mistake the test is for: three values and more in the check of a column.
  database.exec(`create table planted (state text check (state in ('a', 'b', 'c')))`)
  t.ok(makesTable('update planted set state = ?'))
  t.end()
})

t.test('a search walks the index of what leads it, in the order of the page', async (t) => {
  const { database, statements } = prepareAll(t)
  for (const [pattern, step] of [
    [/messages\.seq.*where recipient = \+@recipient/s, 'INDEX messages_to (recipient=? AND rowid>? AND rowid<?)'],
    [
      /messages\.seq.*where content_id = \+@batchContent/s,
      'INDEX messages_of_content (content_id=? AND rowid>? AND rowid<?)',
    ],
    [
      /from content_tags\s+cross join messages/,
      'SEARCH content_tags USING PRIMARY KEY (key=? AND value=? AND content_id>? AND content_id<?)',
    ],
    [/from contents\s+cross join messages/, 'INDEX contents_from (from_address=? AND rowid>? AND rowid<?)'],
    [/from messages where messages\.seq > \+@floor/, 'USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)'],
  ] as const) {
    const found = statements.filter((text) => pattern.test(text))
    t.ok(found.length >= 2, 'the rows, and where they end')
    for (const statement of found) {
      t.ok(
        planOf(database, statement).some((line) => line.includes(step)),
        planOf(database, statement).join(', '),
      )
    }
  }
})

t.test('the spellings of an address are found by the index of its column', (t) => {
  const { database, statements } = prepareAll(t)
  const questions = statements.filter((text) => /select (\w+) from \w+ where \1 >= \? and \1 <= \?/.test(text))
  t.equal(questions.length, 4, 'of the search, and the three of an erasure')
  for (const question of questions) {
    const plan = planOf(database, question)
    t.match(plan, [/^SEARCH \w+ USING COVERING INDEX \w+ \(\w+>\? AND \w+<\?\)$/], plan.join(', '))
  }
  t.end()
})

t.test('a claim asks the suppression list once for each row', async (t) => {
  const { database, statements } = prepareAll(t)
  const claim = statements.find((text) => text.includes('as isListed')) ?? ''
  const steps = planOf(database, claim).filter((detail) => detail.includes('suppressions'))
  t.same(steps, ['SEARCH suppressions USING COVERING INDEX sqlite_autoindex_suppressions_1 (address=?)'])
})

/** Statements of the queue by what they say, with the step that finds their rows. */
const QUEUE_STEPS: [statement: RegExp, step: string][] = [
  [
    /is_retry = \+\? and next_at between \+\? and \+\?/,
    'INDEX messages_queue (pool_id=? AND route_id=? AND lane_id=? AND is_retry=? AND next_at>? AND next_at<?)',
  ],
  [
    /is_retry = \+\? and next_at > \+\?/,
    'INDEX messages_queue (pool_id=? AND route_id=? AND lane_id=? AND is_retry=? AND next_at>?)',
  ],
  [
    /\(pool_id, route_id, lane_id, is_retry, next_at\) >/,
    'INDEX messages_queue ((pool_id,route_id,lane_id,is_retry,next_at)>(?,?,?,?,?))',
  ],
  [
    /select 1\s+from messages\s+where state = 'waiting' and pool_id/,
    'INDEX messages_queue (pool_id=? AND route_id=? AND lane_id=? AND is_retry=?)',
  ],
  [
    /route_id < 1 and recipient_domain = \+\? and next_at <= \+\?/,
    'INDEX messages_unrouted (recipient_domain=? AND next_at<?)',
  ],
  [/messages\.route_id < 1 and messages\.recipient_domain/, 'INDEX messages_unrouted (recipient_domain=?)'],
  [/\(next_at, recipient_domain\) >/, 'COVERING INDEX messages_unrouted_due ((next_at,recipient_domain)>(?,?))'],
  [/state = 'waiting' and pool_id = \? limit/, 'COVERING INDEX messages_queue (pool_id=?)'],
  [
    /select seq from messages where state = 'waiting' and lane_id = \? and seq > \?/,
    'COVERING INDEX messages_of_lane (lane_id=? AND rowid>?)',
  ],
  [
    /messages\.state = 'waiting' and messages\.lane_id = \? and messages\.seq > \?/,
    'INDEX messages_of_lane (lane_id=? AND rowid>?)',
  ],
]

t.test('the queue is read by its keys, its domains without a route, and its lanes', async (t) => {
  const { database, statements } = prepareAll(t)
  for (const [pattern, step] of QUEUE_STEPS) {
    const found = statements.filter((text) => pattern.test(text))
    t.not(found.length, 0, `statements like ${pattern}`)
    for (const statement of found) {
      const plan = planOf(database, statement)
      t.ok(
        plan.some((line) => line.includes(step)),
        `${step}: ${plan.join(', ')}`,
      )
    }
  }
})
