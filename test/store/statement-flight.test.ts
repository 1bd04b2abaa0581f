/**
 * A trip to PostgreSQL is one flight of statements with one answer: where one of them fails, those behind it did
 * nothing, a commit neither, and the connection goes on as if they had never been sent.
 */
import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { MessagePage } from '../../src/store/records/lookup-records.ts'
import { openBlockingWire } from '../../src/store/postgresql/blocking-wire.ts'
import { openConnection } from '../../src/store/postgresql/connection.ts'
import { keepConnected } from '../../src/store/postgresql/kept-connection.ts'
import { createPostgresDatabase } from '../../src/store/postgresql/postgres-database.ts'
import { createRowNumbers } from '../../src/store/postgresql/row-numbers.ts'
import { createStatementQueue } from '../../src/store/postgresql/statement-queue.ts'
import type { WireStatement } from '../../src/store/postgresql/wire-messages.ts'
import { createForgetMessages } from '../../src/store/verbs/retention/forget-messages.ts'
import { createReadVerbs } from '../../src/store/verbs/verbs.ts'
import { skipWithoutPostgres, startPostgres, type PostgresCluster } from '../support/postgres-cluster.ts'
import { postgresLocation } from './postgres-support.ts'
import { openTestStore } from './sqlite-support.ts'
import { NOW, anything } from './store-samples.ts'

const TABLE = 'create table rows (number bigint primary key deferrable initially immediate, bytes bytea)'

const statement = (name: string, text: string, ...values: unknown[]): WireStatement => ({ name, text, values })
const BEGIN = statement('begin', 'begin')
const COMMIT = statement('commit', 'commit')
const FIND = statement('find', 'select number from rows order by number')
const ONE = statement('one', 'select 1 as one')
const insert = (number: unknown, bytes = Buffer.alloc(0)): WireStatement =>
  statement('insert', 'insert into rows (number, bytes) values ($1, $2)', number, bytes)
const found = (...numbers: number[]) => ({ kind: 'done', answers: [{ rows: numbers.map((number) => [number]) }] })

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const cluster = await startPostgres(t)
  const open = async (t: Test, text = TABLE) => {
    const database = await cluster.createDatabase()
    await cluster.query(text, database)
    const line = await startLine(t, cluster.port)
    const connection = await openConnection({ url: cluster.url(database, line.port), line: 'write', name: 'sternpost' })
    t.teardown(() => connection.close())
    line.sent.length = 0
    return {
      sent: line.sent,
      ask: (...statements: WireStatement[]) => connection.ask({ statements, isPatient: false }),
    }
  }

  await t.test('each is prepared and described once, and all are answered at once', async (t) => {
    const { ask, sent } = await open(t)
    const answer = await ask(BEGIN, insert(1), insert(2), FIND, COMMIT)
    const inserted = { fields: [], rows: [], count: 1 }
    t.match(answer, {
      answers: [{ count: 0 }, inserted, inserted, { fields: ['number'], rows: [[1], [2]], count: 2 }, {}],
    })
    const first = 'CPBDE CPBDE BE CPBDE H CPBDE S'
    t.equal(sent.join(''), first.replaceAll(' ', ''))
    sent.length = 0
    t.match(await ask(FIND), { answers: [{ fields: ['number'], rows: [[1], [2]], count: 2 }] })
    t.equal(sent.join(''), 'BES')
  })

  await t.test('a failure in the middle leaves its transaction as it was before', async (t) => {
    const { ask } = await open(t)
    await ask(BEGIN, insert(1), statement('savepoint', 'savepoint verb'))
    t.match(await ask(insert(2), insert(1), ONE), { kind: 'failed', code: '23505' })
    t.match(await ask(ONE), { kind: 'failed', code: '25P02' }, 'nothing is answered before it is undone')
    t.match(await ask(statement('undo', 'rollback to verb')), { kind: 'done' })
    t.match(await ask(ONE, FIND, COMMIT), { answers: [{ rows: [[1]] }, { rows: [[1]] }, {}] })
    t.match(await ask(insert('none'), ONE), { kind: 'failed', code: '22P02' }, 'of a value that is wrong')
    t.match(await ask(statement('wrong', 'select nothing')), { kind: 'failed', code: '42703' }, 'of a text')
    t.match(await ask(statement('wrong', 'select nothing')), { kind: 'failed', code: '42703' }, 'and again')
    t.match(await ask(insert(3), FIND), { answers: [{ count: 1 }, { rows: [[1], [3]] }] }, 'without a transaction')
    t.match(await ask(insert(4), insert(1)), { kind: 'failed', code: '23505' })
    t.match(await ask(FIND), found(1, 3), 'nor is anything kept of what was sent with a failure')
  })

  await t.test('a commit that was left out leaves no transaction behind', async (t) => {
    const { ask } = await open(t)
    t.match(await ask(BEGIN, insert(1), insert(1), insert(2), COMMIT), { kind: 'failed', code: '23505' })
    t.match(await ask(BEGIN, insert(3), COMMIT), { kind: 'done' })
    t.match(await ask(FIND), found(3))
    const late = statement('late', 'set constraints all deferred')
    t.match(
      await ask(BEGIN, late, insert(4), insert(3), COMMIT),
      { kind: 'failed', code: '23505' },
      'one that fails itself',
    )
    t.match(await ask(BEGIN, insert(5), COMMIT), { kind: 'done' })
    t.match(await ask(FIND), found(3, 5))
  })

  await t.test('two flights at once', async (t) => {
    const { ask } = await open(t)
    await ask(insert(1))
    const failing = statement('failing', 'select 1 / $1::int', 0)
    const rename = statement('rename', 'alter table rows rename to others')
    const flights = [ask(failing, FIND), ask(FIND, insert(2)), ask(rename, FIND)]
    t.match(await Promise.all(flights), [
      { kind: 'failed', code: '22012' },
      { kind: 'done', answers: [{ fields: ['number'], rows: [[1]] }, { count: 1 }] },
      { kind: 'failed', code: '42P01' },
    ])
    t.match(await ask(FIND), found(1, 2), 'what the last one could not prepare again is prepared anew')
  })

  await t.test('of a long flight the server is asked for what it has', async (t) => {
    const { ask, sent } = await open(t)
    await ask(BEGIN, COMMIT, insert(0))
    sent.length = 0
    const bytes = Buffer.alloc(200 * 1_024, 'long')
    const many = Array.from({ length: 33 }, (_, index) => insert(index + 1))
    const large = Array.from({ length: 4 }, (_, index) => insert(index + 34, bytes))
    t.match(await ask(BEGIN, ...many, ...large, COMMIT), { kind: 'done' })
    t.equal(sent.join(''), ['BE'.repeat(16), 'BE'.repeat(16), 'BEBEBEBE', 'BEBE', 'BES'].join('H'))
    sent.length = 0
    await ask(BEGIN, insert(38), COMMIT)
    t.equal(sent.join(''), 'BEBEHBES', 'before a commit, which waits for the disk')
    const sum = statement('sum', 'select count(*), sum(length(bytes)) from rows')
    t.match(await ask(sum), { answers: [{ rows: [[39, 4 * bytes.length]] }] })
  })

  await t.test('a session that is ended in the middle of a flight is lost', async (t) => {
    const { ask } = await open(t)
    const end = statement('end', 'select pg_terminate_backend(pg_backend_pid())')
    t.match(await ask(BEGIN, insert(1), end, COMMIT), { kind: 'lost' })
    t.match(await ask(FIND), { kind: 'lost' })
  })

  await t.test(
    'who waits for another connection has no timer of its own, and waits for none behind the end',
    async (t) => {
      const kept = keepConnected({ url: cluster.url('postgres'), line: 'read', name: 'sternpost' })
      const ask = () => kept.ask({ session: null, lastCommit: null, isPatient: false, statements: [ONE] })
      const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
      t.match(await ask(), { kind: 'done' })
      kept.drop()
      const before = timers()
      const asked = Promise.all([ask(), ask(), ask()])
      t.equal(timers(), before)
      await kept.close()
      const gone = { kind: 'unreachable' }
      t.match(await Promise.race([asked, setImmediate()]), [gone, gone, gone])
    },
  )

  await t.test('what nobody waits for any more ends with its transaction', async (t) => {
    const database = await cluster.createDatabase()
    await cluster.query(TABLE, database)
    openBlockingWire({ url: cluster.url(database) }, null, 1).close()
    const wire = openBlockingWire({ url: cluster.url(database) }, null, 100)
    t.teardown(() => wire.close())
    const ask = (...statements: WireStatement[]) => wire.ask('write', statements, true)
    ask(FIND)
    const sleep = statement('sleep', 'select pg_sleep(0.5)')
    t.throws(() => wire.ask('write', [BEGIN, insert(1), sleep]), { code: 'unavailable' })
    wire.granted.session = null
    ask(BEGIN, insert(2), COMMIT)
    t.match(ask(FIND), [{ rows: [[2]] }])
  })

  await t.test('what is asked of many lanes, or many contents, takes few trips', async (t) => {
    const { verbs, trips } = await readingOver(t, cluster, 250)
    const all = { waiting: 549, next: null }
    t.same([verbs.countSomeWaiting(null), trips() < 40], [all, true], 'one lane has more than its share')
    const { groups, next } = verbs.someQueueGroups({ by: 'pool', filter: {}, now: NOW, after: null })
    t.match([groups, next, trips() < 40], [[{ waiting: 549 }], null, true])
    const none = { messages: [], next: null }
    t.same(verbs.searchMessages({ ...anything, subject: 'order', state: 'bounced' }), none)
    t.ok(trips() < 40)
    const found: string[] = []
    for (let after: string | null = null; found.length === 0 || after !== null;) {
      const page: MessagePage = verbs.searchMessages({ ...anything, subject: 'order', after })
      found.push(...page.messages.map(({ recipient }) => recipient))
      after = page.next
    }
    t.same(
      found,
      Array.from({ length: 549 }, (_, index) => `${549 - index}@example.com`),
      'each once, newest first',
    )
  })

  await t.test('an old message goes in few trips', async (t) => {
    const { reader, trips, query } = await readingOver(t, cluster, 40)
    await query(`update messages set state = 'delivered', final_at = 1`)
    await query(
      `insert into events (event_seq, id, message_seq, kind, at) select seq, id, seq, 'email.accepted', 1 from messages`,
    )
    const forget = createForgetMessages(reader)
    let messages = 0
    while (messages < 30) {
      const request = { before: NOW, now: NOW, linksBefore: NOW, after: messages, limit: 30 }
      messages = forget(request).next ?? 0
    }
    t.ok(trips() < 8 * messages)
    t.match(await query('select min(seq)::int as seq from messages'), [{ seq: messages + 1 }])
  })
}

/** So many lanes and contents with a message each, and 300 of the first; how many trips were made since it was asked last. */
async function readingOver(t: Test, cluster: PostgresCluster, count: number) {
  const database = await cluster.createDatabase()
  const url = cluster.url(database)
  const { store } = await openTestStore(postgresLocation(url))
  await store.close()
  await cluster.query(
    `insert into pools (pool_id, name) values (1, 'default');
    insert into lanes (lane_id, domain, stream) select n, n || '.example', 'bulk' from generate_series(1, ${count}) as n;
    insert into contents (content_id, from_address, subject, has_variables) select n, '', '', 0 from generate_series(1, ${count}) as n;
    insert into subjects (rowid, subject) select n, '{your,order}' from generate_series(1, ${count}) as n;
    insert into messages
      (seq, id, state, pool_id, lane_id, content_id, recipient, recipient_domain, next_at, expires_at, created_at)
    select
      n, decode(lpad(to_hex(n), 32, '0'), 'hex'), 'waiting', 1, greatest(1, n - 299), greatest(1, n - 299),
      n || '@example.com', 'example.com', 0, 0, n
    from generate_series(1, ${count} + 299) as n`,
    database,
  )
  const wire = openBlockingWire({ url }, null)
  t.teardown(() => wire.close())
  let made = 0
  const counted: typeof wire = {
    ...wire,
    ask(...asked) {
      made += 1
      return wire.ask(...asked)
    },
  }
  const queue = createStatementQueue(counted, 'read')
  const reader = createPostgresDatabase({ queue, rowNumbers: createRowNumbers(wire), erasureKey: undefined })
  const verbs = createReadVerbs({ reader, databaseSize: () => ({ fileBytes: 0, usedBytes: 0, logBytes: 0 }) })
  const trips = (): number => {
    const now = made
    made = 0
    return now
  }
  return { reader, verbs, trips, query: (text: string) => cluster.query(text, database) }
}

/** Passes on, and notes the letters of the messages that go to the server; the first message has none. */
async function startLine(t: Test, to: number): Promise<{ port: number; sent: string[] }> {
  const sent: string[] = []
  const server = createServer((client) => {
    const upstream = connect(to, '127.0.0.1')
    let rest: Buffer = Buffer.alloc(0)
    let head = 0
    client.on('data', (bytes: Buffer) => {
      rest = Buffer.concat([rest, bytes])
      while (rest.length >= head + 4 && rest.length >= head + rest.readUInt32BE(head)) {
        if (head > 0) sent.push(rest.toString('latin1', 0, 1))
        rest = rest.subarray(head + rest.readUInt32BE(head))
        head = 1
      }
    })
    client.pipe(upstream).pipe(client)
    for (const socket of [client, upstream])
      socket.on('error', () => [client, upstream].forEach((each) => each.destroy()))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const address = server.address()
  return { port: typeof address === 'object' && address !== null ? address.port : 0, sent }
}
