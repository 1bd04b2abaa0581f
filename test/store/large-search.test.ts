/**
 * A search costs by what it finds, not by what is stored: the same searches over 1,000 messages and over many more.
 *
 * What is compared are the rows that a search looks at, counted by a function in its statement; that they are found by
 * an index and need no sorting is the part of query-plans.test.ts. Time decides nothing.
 */
import type { Database } from 'better-sqlite3'
import t, { type Test } from 'tap'
import type { MessagePage, SearchMessagesRequest } from '../../src/store/records/lookup-records.ts'
import { MOST_ROWS_READ } from '../../src/store/verbs/tools/pages.ts'
import { openDatabase } from '../../src/store/sqlite/engine/database.ts'
import { createSearchMessages } from '../../src/store/verbs/lookups/search.ts'
import { locationIn } from './sqlite-support.ts'
import { NOW, anything } from './store-samples.ts'

// The rows of the full size take long to write on a slow machine.
t.setTimeout(600_000)

const MANY = process.env['TEST_SCALE'] === 'full' ? 1_000_000 : 200_000
const FEW = 1_000
const PER_RECIPIENT = 5
const PER_CONTENT = 100
const SECOND = 1_000

/** Messages a second apart, five to each recipient, in contents of a hundred; every tenth content is tagged. */
function fill(database: Database, count: number): void {
  const numbers = (end: number) => `with recursive numbers (n) as (select 1 union all select n + 1 from numbers
    where n < ${end})`
  database.exec(`
    insert into pools (name) values ('default');
    insert into lanes (domain, stream) values ('acme.com', 'bulk');
    ${numbers(count / PER_CONTENT)}
    insert into contents (content_id, from_address, subject, has_variables, text_bytes)
      select n, 'from' || (n % 10) || '@acme.com', 'Hello', 0, 0 from numbers;
    insert into content_tags (key, value, content_id)
      select 'campaign', 'spring', content_id from contents where content_id % 10 = 0;
    ${numbers(count)}
    insert into messages
      (seq, id, state, pool_id, lane_id, content_id, recipient, recipient_domain, next_at, expires_at, created_at)
      select n, randomblob(16), 'delivered', 1, 1, (n - 1) / ${PER_CONTENT} + 1,
        'r' || (n % ${count / PER_RECIPIENT}) || '@example.com', 'example.com', 0, 0, ${NOW} + n * ${SECOND}
      from numbers`)
}

interface Counted {
  search: (changes: Partial<SearchMessagesRequest>) => MessagePage
  /** Rows looked at since it was last asked. */
  looked: () => number
}

function searchOver(t: Test, count: number): Counted {
  const opened = openDatabase(locationIn(t.testdir({})))
  t.teardown(() => opened.close())
  fill(opened.writer, count)
  let looked = 0
  opened.reader.function('look_at', { deterministic: false }, () => {
    looked += 1
    return 1
  })
  const counting = new Proxy(opened.reader, {
    get(target, property) {
      if (property !== 'prepare') return Reflect.get(target, property)
      return (statement: string) => target.prepare(statement.replace(' as walked where', '$& look_at() and'))
    },
  })
  const search = createSearchMessages(counting)
  return {
    search: (changes) => search({ ...anything, ...changes }),
    looked() {
      const now = looked
      looked = 0
      return now
    },
  }
}

t.test(`over ${MANY} messages a search looks at no more than over ${FEW}`, async (t) => {
  const few = searchOver(t, FEW)
  const many = searchOver(t, MANY)
  for (const [changes, found] of [
    [{ recipient: 'r7@example.com' }, PER_RECIPIENT],
    [{ recipient: 'r7@example.com', state: 'bounced' as const }, 0],
    [{ recipient: 'nobody@example.com' }, 0],
    [{ from: 'from3@acme.com', limit: 10 }, 10],
    [{ tag: { key: 'campaign', value: 'spring' }, limit: 10 }, 10],
    [{ limit: 10 }, 10],
    [{ since: NOW, limit: 10 }, 10],
  ] as const) {
    t.equal(few.search(changes).messages.length, found)
    t.equal(many.search(changes).messages.length, found)
    const [small, large] = [few.looked(), many.looked()]
    t.ok(large <= 3 * small, `${JSON.stringify(changes)}: ${small} and ${large} rows`)
    t.ok(large <= 100, 'and these are few')
  }
})

t.test('what no index leads to is looked for in bounded steps, and found in the end', async (t) => {
  const { search, looked } = searchOver(t, MANY)
  let after: string | null = null
  let calls = 0
  do {
    const page = search({ isp: 'gmail', after })
    t.same(page.messages, [])
    t.ok(looked() <= MOST_ROWS_READ)
    after = page.next
    calls += 1
  } while (after !== null)
  // The last full step cannot know that nothing follows.
  t.equal(calls, MANY / MOST_ROWS_READ + 1)
})

t.test('a search for a time that is past does not walk through what came later', async (t) => {
  const { search, looked } = searchOver(t, MANY)
  const until = NOW + 20_000 * SECOND
  const { messages } = search({ until, limit: 10 })
  t.same(
    messages.map(({ createdAt }) => createdAt),
    Array.from({ length: 10 }, (_, back) => until - back * SECOND),
  )
  // An hour of messages: the room for a clock that was set back.
  t.ok(looked() <= 3_600 + 20)
  t.same(search({ since: until - 2 * SECOND, until, limit: 10 }).messages.length, 3)
  t.ok(looked() <= 2 * 3_600 + 20, 'nor through what came before')
})

t.test('a clock that was set back within the hour hides no message', async (t) => {
  const opened = openDatabase(locationIn(t.testdir({})))
  t.teardown(() => opened.close())
  fill(opened.writer, FEW)
  const back = 3_000 * SECOND
  opened.writer.exec(`update messages set created_at = created_at - ${back} where seq > 500`)
  const search = createSearchMessages(opened.reader)
  const all = search({ ...anything, limit: FEW }).messages.map(({ createdAt }) => createdAt)
  for (const middle of [NOW - back + 700 * SECOND, NOW + 300 * SECOND]) {
    for (const [since, until] of [
      [middle, null],
      [null, middle],
      [middle, middle + 60 * SECOND],
    ] as const) {
      const expected = all.filter((at) => at >= (since ?? 0) && at <= (until ?? Infinity)).length
      t.ok(expected > 0)
      t.equal(search({ ...anything, limit: FEW, since, until }).messages.length, expected)
    }
  }
})
