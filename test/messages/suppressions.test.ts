/**
 * The suppression list: entries by hand, and imports of files that people and programs really write.
 */
import fc from 'fast-check'
import t from 'tap'
import type { Whose } from '../../src/messages/suppressions/check-suppression.ts'
import type { SuppressionQuery } from '../../src/api/suppression.ts'
import { SECOND, toUnixSeconds } from '../../src/base/clock.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import { readCsv, type CsvRow } from '../../src/messages/suppressions/read-csv.ts'
import { createSuppressions, type Suppressions } from '../../src/messages/suppressions/suppressions.ts'
import type { Store } from '../../src/store/store.ts'
import { testStore } from '../senders/sender-parts.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { verdict } from './acceptance-parts.ts'

const query = (changes: Partial<SuppressionQuery> = {}): SuppressionQuery => ({
  email: null,
  reason: null,
  scope: null,
  since: null,
  limit: 50,
  after: null,
  ...changes,
})

const LIVE: Whose = { isTest: false, domains: [] }
const TEST: Whose = { isTest: true, domains: [] }
const given = (email: string | undefined, reason?: string, scope?: string, domain?: string) => ({
  email,
  reason,
  scope,
  domain,
})

interface Parts {
  store: Store
  clock: ManualClock
  list: Suppressions
  /** What is on the list, the oldest first. */
  entries(isTest?: boolean): Promise<string[]>
}

async function parts(t: Parameters<typeof testStore>[0]): Promise<Parts> {
  const store = await testStore(t)
  const clock = manualClock()
  const list = createSuppressions({ store, clock, metrics: createMetrics() })
  return {
    store,
    clock,
    list,
    async entries(isTest = false) {
      const { suppressions } = await list.list(query({ limit: 100 }), { isTest, domains: [] })
      return suppressions.map(({ email, reason, scope }) => `${email} ${reason} ${scope}`).reverse()
    },
  }
}

t.test('an entry is added once, listed, and removed', async (t) => {
  const { list, clock, entries } = await parts(t)
  const first = await list.add(given('Ada <X@ACME.org>'), LIVE)
  t.match(first, {
    isNew: true,
    suppression: {
      id: /^sup_[0-9a-hjkmnp-tv-z]{26}$/,
      email: 'x@acme.org',
      reason: 'manual',
      scope: 'all',
      message_id: null,
      created_at: toUnixSeconds(clock.now()),
    },
  })
  await clock.advance(SECOND)
  t.same(await list.add(given('X@acme.org', 'hard_bounce'), LIVE), { ...first, isNew: false }, 'as it was')
  await list.add(given('X@acme.org', 'unsubscribe', 'news'), LIVE)
  await list.add(given('y@acme.org'), LIVE)
  await list.add(given('X@acme.org'), TEST)
  t.same(await entries(), ['x@acme.org manual all', 'x@acme.org unsubscribe news', 'y@acme.org manual all'])
  t.same(await entries(true), ['x@acme.org manual all'], 'test keys have a list of their own')
  const found = async (changes: Partial<SuppressionQuery>): Promise<number> =>
    (await list.list(query(changes), LIVE)).suppressions.length
  t.equal(await found({ email: 'X@ACME.ORG' }), 2)
  t.equal(await found({ reason: 'manual' }), 2)
  t.equal(await found({ scope: 'news' }), 1)
  t.equal(await found({ since: toUnixSeconds(clock.now()) }), 2)
  const page = await list.list(query({ limit: 2 }), LIVE)
  t.equal(page.suppressions.length, 2)
  t.match(await list.list(query({ limit: 2, after: page.next }), LIVE), {
    suppressions: [{ scope: 'all' }],
    next: null,
  })
  t.same(await list.remove('X@Acme.org', 'news', LIVE), { email: 'X@acme.org', deleted: 1 })
  t.same(await list.remove('X@acme.org', null, LIVE), { email: 'X@acme.org', deleted: 1 })
  await t.rejects(list.remove('X@acme.org', null, LIVE), { code: 'not_found', details: 'suppression of X@acme.org' })
  await t.rejects(list.remove('y@acme.org', 'news', LIVE), { code: 'not_found', details: /with scope news$/ })
  t.same(await entries(true), ['x@acme.org manual all'])
})

t.test('bad entries and questions are refused with every problem', async (t) => {
  const { list, entries } = await parts(t)
  const add = (...entry: Parameters<typeof given>): Promise<string> => verdict(list.add(given(...entry), LIVE))
  t.equal(await add(undefined), 'invalid_request: email: is missing')
  const answer = await add('x@@y', 'angry', 'News')
  t.ok(
    answer.startsWith(
      "invalid_request: email: 'x@@y' has two '@' signs; reason: 'angry' is no reason; known are " +
        'hard_bounce, complaint, unsubscribe, manual; scope: must be 1 to 64 of a-z',
    ),
    answer,
  )
  t.match(await add('a@b.org\r\nc@d.org'), /^invalid_request: email: has the control character/)
  t.equal(
    await add('a@b.org', 'hard_bounce', 'news'),
    'invalid_request: scope: must be all with the reason hard_bounce',
  )
  t.match(await add('a@b.org', '__proto__'), /^invalid_request: reason: /)
  t.match(
    await verdict(list.list(query({ email: 'x', reason: 'y', scope: 'Z' }), LIVE)),
    /^invalid_request: email: .*; reason: .*; scope: /,
  )
  t.match(await verdict(list.list(query({ after: 'x' }), LIVE)), /^invalid_request: /)
  t.match(await verdict(list.remove('x', 'Y', LIVE)), /^invalid_request: email: .*; scope: /)
  t.same(await entries(), [])
  t.equal(await add('a@b.test'), 'accepted', 'a reserved name may be on the list of a server for tests')
})

t.test('a file is imported line by line, the bad ones are told', async (t) => {
  const { list, entries } = await parts(t)
  await list.add(given('old@example.org'), LIVE)
  const csv = [
    '\u{feff}Email,Reason,Scope',
    'ada@example.org,complaint,',
    'bob@EXAMPLE.org',
    '"carol@example.org","unsubscribe","news"',
    '',
    'old@example.org,manual,all',
    'bob@example.org',
    'bad@@example.org',
    'dave@example.org,angry',
    'a@b.org,manual,all,x',
    ' eve@example.org , manual ',
    '"fay@example.org',
    'gus@example.org"',
    '"hal"@example.org',
    ',manual',
    'ivy@example.org,complaint,x',
  ].join('\r\n')
  const errors = [
    "line 8: email: 'bad@@example.org' has two '@' signs",
    "line 9: reason: 'angry' is no reason; known are hard_bounce, complaint, unsubscribe, manual",
    'line 10: 4 fields, not 3',
    'line 12: email: has the control character U+000D',
    'line 14: text behind a closing quote',
    'line 15: email: is missing',
    'line 16: scope: must be all with the reason complaint',
  ]
  t.same(await list.import(csv, LIVE), { added: 4, existing: 2, rejected: 7, errors })
  t.same(await entries(), [
    'old@example.org manual all',
    'ada@example.org complaint all',
    'bob@example.org manual all',
    'carol@example.org unsubscribe news',
    'eve@example.org manual all',
  ])
  t.same(
    await list.import(csv, LIVE),
    { added: 0, existing: 6, rejected: 7, errors },
    'importing it again changes nothing',
  )
  const one = { added: 1, existing: 0, rejected: 0, errors: [] }
  t.same(await list.import('scope,email\nnews,zoe@example.org', TEST), one, 'columns in any order')
  t.same(await entries(true), ['zoe@example.org manual news'])
  await list.import(`email\n'+1@example.org\n''+2@example.org\n'3@example.org`, TEST)
  const guarded = ['+1@example.org manual all', "'+2@example.org manual all", "'3@example.org manual all"]
  t.same((await entries(true)).slice(1), guarded, 'one apostrophe before a formula guards it')
})

t.test('a file without a right header line is refused', async (t) => {
  const { list, entries } = await parts(t)
  const headless = [
    '',
    '\n',
    'ada@example.org',
    'reason,scope',
    'email,email',
    'email,name',
    '\u{feff}',
    'email;reason',
    '"email',
  ]
  for (const csv of headless) {
    const answer = await verdict(list.import(csv, LIVE))
    t.match(answer, /^invalid_request: line 1: expected the header line/, JSON.stringify(csv))
  }
  t.match(await verdict(list.import(`email\n${'x'.repeat(10 * 2 ** 20)}`, LIVE)), /^payload_too_large: /)
  t.same(await list.import('email', LIVE), { added: 0, existing: 0, rejected: 0, errors: [] })
  t.same(await entries(), [])
})

t.test('a large file is written in pieces, and gives others their turn', async (t) => {
  const { store, clock } = await parts(t)
  const sizes: number[] = []
  const list = createSuppressions({
    clock,
    metrics: createMetrics(),
    store: { ...store, addSuppressions: async (entries) => (sizes.push(entries.length) > 0 ? entries.length : 0) },
  })
  let turns = 0
  const turn = (): void => {
    turns += 1
    pending = setImmediate(turn)
  }
  let pending = setImmediate(turn)
  const lines = Array.from({ length: 20_000 }, (_, index) => `user${index}@example.org`)
  const all = { added: 20_000, existing: 0, rejected: 0, errors: [] }
  t.same(await list.import(`email\n${lines.join('\n')}\n`, LIVE), all)
  t.ok(Math.max(...sizes) <= 500)
  t.ok(turns >= 20_000 / 500)
  const bad = await list.import(`email\n${'x\n'.repeat(100_000)}${'\n'.repeat(100_000)}`, LIVE)
  t.match(bad, { added: 0, rejected: 100_000 })
  t.equal(bad.errors.length, 100)
  clearImmediate(pending)
})

const rowsOf = (csv: string): CsvRow[] => [...readCsv(csv)]

t.test('CSV is read as RFC 4180 has it, with the line of each row', async (t) => {
  const cases: [string, [number, string[]][]][] = [
    [
      'a,b\r\nc,d\r\n',
      [
        [1, ['a', 'b']],
        [2, ['c', 'd']],
      ],
    ],
    [
      'a\nb\rc',
      [
        [1, ['a']],
        [2, ['b']],
        [3, ['c']],
      ],
    ],
    [
      '"a,b","c ""d"""\n"e\r\nf",g\nh',
      [
        [1, ['a,b', 'c "d"']],
        [2, ['e\r\nf', 'g']],
        [4, ['h']],
      ],
    ],
    [
      'a,,\n,\n""',
      [
        [1, ['a', '', '']],
        [2, ['', '']],
        [3, ['']],
      ],
    ],
    [
      '\n\na',
      [
        [1, ['']],
        [2, ['']],
        [3, ['a']],
      ],
    ],
    ['a,', [[1, ['a', '']]]],
    ['', []],
  ]
  for (const [csv, rows] of cases) {
    t.same(
      rowsOf(csv).map(({ line, fields }) => [line, fields]),
      rows,
      JSON.stringify(csv),
    )
    t.ok(rowsOf(csv).every(({ problem }) => problem === null))
  }
  t.match(
    rowsOf('"a\nb\nc'),
    [{ line: 1, problem: 'a quote that is not closed' }, { line: 2, fields: ['b'], problem: null }, { line: 3 }],
    'a fault costs its own line',
  )
})

t.test('property: what was written as CSV is read back', async (t) => {
  const field = fc.oneof(fc.string(), fc.string({ unit: fc.constantFrom('"', ',', '\r', '\n', 'a', ' ') }))
  const table = fc.array(fc.array(field, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 5 })
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(table, fc.constantFrom('\r\n', '\n'), (rows, lineEnd) => {
        const csv = rows
          .map((fields) => fields.map((text) => `"${text.replaceAll('"', '""')}"`).join(','))
          .join(lineEnd)
        const read = rowsOf(csv).map(({ fields, problem }) => ({ fields, problem }))
        return JSON.stringify(read) === JSON.stringify(rows.map((fields) => ({ fields, problem: null })))
      }),
    ),
  )
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('"', ',', '\n', '\r', 'a') }), (csv) => {
        // Whatever it is, every line is counted once and reading ends.
        const lines = csv.split(/\r\n|\r|\n/).length
        return rowsOf(csv).every(({ line }, index, all) => line <= lines && line > (all[index - 1]?.line ?? 0))
      }),
    ),
  )
})

t.test('hostile CSV costs linear time', async (t) => {
  const start = performance.now()
  for (const piece of ['"', '""', '"\n', '"a\n', ',', '\r', '"""\n', '"a""b\n', '"\n"']) {
    for (const row of readCsv(piece.repeat((2 * 2 ** 20) / piece.length))) if (row.line < 0) t.fail('a line below 1')
  }
  t.ok(performance.now() - start < 60_000, 'within seconds')
})
