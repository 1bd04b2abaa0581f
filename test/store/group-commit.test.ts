/**
 * How verbs share commits: who waits for whom, what ends a group, and what a failure takes with it.
 */
import Sqlite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { createMetrics } from '../../src/base/metrics.ts'
import { createCheckpoint } from '../../src/store/sqlite/engine/checkpoint.ts'
import { createCommitTimes } from '../../src/store/thread/commit-times.ts'
import {
  createGroupCommit,
  type CommitReport,
  type GroupCommit,
  type PendingVerb,
} from '../../src/store/thread/group-commit.ts'
import { until } from '../support/until.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { acceptOne } from './store-samples.ts'

/** Longer than any test: who waits for company that does not come fails by its deadline. */
const FOREVER = 60_000
const PAGE = 4_096

interface Bed {
  groups: GroupCommit
  reports: CommitReport[]
  database: Sqlite.Database
  /** Moves the clock that the groups see. */
  pass(milliseconds: number): void
  /** A verb that inserts this value; its promise settles with the answer. */
  insert(value: number, changes?: Partial<PendingVerb>): { verb: PendingVerb; answer: Promise<unknown> }
  values(): number[]
}

/** `groupTakes`: by the clock that the groups see. */
function makeBed(
  t: Test,
  { linger = 2 * FOREVER, groupTakes = FOREVER, afterGroup = (_bytes: number): void => undefined } = {},
): Bed {
  const database = new Sqlite(`${t.testdir({})}/bed.db`)
  t.teardown(() => database.close())
  database.pragma('journal_mode = wal')
  database.exec(`
    create table parents (id integer primary key);
    create table bed (value integer unique, parent integer references parents deferrable initially deferred)`)
  const reports: CommitReport[] = []
  let now = 1_000
  const groups = createGroupCommit({
    database,
    lingerMilliseconds: linger,
    mostRows: 100,
    mostWorkMilliseconds: 5,
    requireInPlace: () => {},
    isLate: () => false,
    wasCommitted: () => undefined,
    now: () => now,
    afterGroup,
    onCommit(report) {
      reports.push(report)
      now += groupTakes
    },
  })
  const add = database.prepare('insert into bed (value) values (?)')
  return {
    groups,
    reports,
    database,
    pass: (milliseconds) => void (now += milliseconds),
    insert: (value, changes = {}) => pending(() => (add.run(value), value), changes),
    values: () => database.prepare<[], number>('select value from bed order by value').pluck().all(),
  }
}

function pending(run: () => unknown, changes: Partial<PendingVerb> = {}): ReturnType<Bed['insert']> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>()
  promise.catch(() => undefined)
  return { verb: { run, resolve, reject, messages: 1, rows: 1, bytes: 1, ...changes }, answer: promise }
}

/** Adds these values at once and waits for their answers. */
async function addAll(bed: Bed, values: readonly number[]): Promise<void> {
  const inserts = values.map((value) => bed.insert(value))
  bed.groups.add(inserts.map(({ verb }) => verb))
  await Promise.all(inserts.map(({ answer }) => answer))
}

const sizes = (bed: Bed): number[] => bed.reports.map(({ verbs }) => verbs)

t.test('a lone verb never waits for company', async (t) => {
  const bed = makeBed(t)
  for (const value of [1, 2, 3]) await addAll(bed, [value])
  t.same(sizes(bed), [1, 1, 1])
})

t.test('what waits together is committed together', async (t) => {
  const bed = makeBed(t)
  await addAll(bed, [1, 2, 3])
  t.same(
    bed.reports.map(({ verbs, messages }) => [verbs, messages]),
    [[3, 3]],
  )
  t.same(bed.values(), [1, 2, 3])
})

t.test('what comes after a group does not keep its answers', async (t) => {
  const followed: string[] = []
  const bed = makeBed(t, { afterGroup: (bytes) => void followed.push(`${bytes} bytes`) })
  const first = bed.insert(1, { bytes: 7 })
  const answered = first.answer.then(() => followed.push('answer'))
  bed.groups.add([first.verb])
  await answered
  await until('the group was followed', () => followed.length > 1)
  t.same(followed, ['answer', '7 bytes'])

  bed.groups.add([2, 3].map((value) => bed.insert(value, { rows: 90 }).verb))
  bed.groups.finish()
  await new Promise((resolve) => setImmediate(resolve))
  t.same(sizes(bed), [1, 1, 1])
  t.equal(followed.length, 2, 'nothing comes after the end')
})

t.test('after a group of several verbs the next begins the linger time after its beginning', async (t) => {
  const bed = makeBed(t, { groupTakes: 1_000, linger: 1_200 })
  await addAll(bed, [1, 2, 3])
  const early = bed.insert(4)
  bed.groups.add([early.verb])
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
  t.same(sizes(bed), [3], 'it waits')
  await Promise.all([early.answer, addAll(bed, [5, 6])])
  t.same(sizes(bed), [3, 3])

  const late = makeBed(t, { groupTakes: 1_000, linger: 1_000 })
  await addAll(late, [1, 2, 3])
  await addAll(late, [4])
  t.same(sizes(late), [3, 1])
})

t.test('the shorter a group took, the sooner the next begins', async (t) => {
  const quick = makeBed(t, { groupTakes: 0 })
  await addAll(quick, [1, 2, 3])
  await addAll(quick, [4])
  t.same(sizes(quick), [3, 1], 'at once')

  const bed = makeBed(t, { groupTakes: 100 })
  await addAll(bed, [1, 2, 3])
  const early = bed.insert(4)
  bed.groups.add([early.verb])
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
  t.same(sizes(bed), [3], 'it waits three times as long')
  await Promise.all([early.answer, addAll(bed, [5, 6])])
  t.same(sizes(bed), [3, 3])
})

t.test('a lone acceptance waits for nobody, however much else goes on', async (t) => {
  const bed = makeBed(t)
  const marks = [1, 2, 3].map((value) => bed.insert(value, { messages: 0 }))
  bed.groups.add(marks.map(({ verb }) => verb))
  await Promise.all(marks.map(({ answer }) => answer))
  const lingering = bed.insert(4, { messages: 0 })
  bed.groups.add([lingering.verb])
  await addAll(bed, [5])
  t.same(sizes(bed), [3, 2], 'what lingers goes with it')
  t.equal(await lingering.answer, 4)
})

t.test('a group that is full waits for nobody', async (t) => {
  const bed = makeBed(t)
  await addAll(bed, [1, 2])
  const inserts = [3, 4].map((value) => bed.insert(value, { rows: 60 }))
  bed.groups.add(inserts.map(({ verb }) => verb))
  await Promise.all(inserts.map(({ answer }) => answer))
  t.same(sizes(bed), [2, 1, 1])
})

t.test('after a rest nobody waits', async (t) => {
  const bed = makeBed(t)
  await addAll(bed, [1, 2, 3])
  bed.pass(100)
  await addAll(bed, [4])
  t.same(sizes(bed), [3, 1])
})

t.test('rows, bytes and work end a group', async (t) => {
  for (const [what, changes, expected] of [
    ['rows', { rows: 60 }, [1, 1, 1]],
    ['bytes', { bytes: 2_000_000 }, [2, 1]],
    ['one that is too large alone', { rows: 1_000 }, [1, 1, 1]],
  ] as const) {
    const bed = makeBed(t)
    const inserts = [1, 2, 3].map((value) => bed.insert(value, changes))
    bed.groups.add(inserts.map(({ verb }) => verb))
    await Promise.all(inserts.map(({ answer }) => answer))
    t.same(sizes(bed), expected, what)
  }
  const bed = makeBed(t)
  const slow = [1, 2, 3].map(() => pending(() => bed.pass(4)))
  bed.groups.add(slow.map(({ verb }) => verb))
  await Promise.all(slow.map(({ answer }) => answer))
  t.same(sizes(bed), [2, 1], 'work')
})

/** Adds at once what notes its name as it runs, and waits for the answers; returns the names in the order in which they ran. */
async function orderOf(bed: Bed, verbs: readonly (Partial<PendingVerb> & { name: string; takes?: number })[]) {
  const names: string[] = []
  const added = verbs.map(({ name, takes = 0, ...changes }) =>
    pending(() => {
      names.push(name)
      bed.pass(takes)
    }, changes),
  )
  bed.groups.add(added.map(({ verb }) => verb))
  await Promise.all(added.map(({ answer }) => answer))
  return names
}

t.test('acceptances go first, but not many', async (t) => {
  const bed = makeBed(t)
  const outcome = { name: 'outcome', messages: 0 }
  const batch = { name: 'batch', messages: 20, rows: 20 }
  const accept = { name: 'accept', messages: 10, rows: 10 }
  const names = await orderOf(bed, [outcome, batch, accept, { ...accept, name: 'second' }])
  t.strictSame(names, ['accept', 'outcome', 'batch', 'second'])
})

t.test('who accepts for long does not keep the others waiting for more than a group', async (t) => {
  const bed = makeBed(t, { groupTakes: 0 })
  const accept = { name: 'accept', rows: 8, takes: 6 }
  const outcome = { name: 'outcome', messages: 0, takes: 6 }
  t.strictSame(await orderOf(bed, [outcome, accept, accept]), ['accept', 'outcome', 'accept'])
})

t.test('what runs as one runs alone where an acceptance would wait for it', async (t) => {
  const parts: number[] = []
  const together = (requests: readonly unknown[]): unknown[] => (parts.push(requests.length), requests.slice())
  const outcome = { name: 'outcome', messages: 0, together }
  const bed = makeBed(t)
  await orderOf(bed, [outcome, outcome, outcome])
  t.strictSame(parts, [3])
  t.strictSame(await orderOf(bed, [outcome, outcome, { name: 'accept' }]), ['accept', 'outcome', 'outcome'])
})

t.test('a verb that throws is undone alone and rejected alone', async (t) => {
  const bed = makeBed(t)
  const half = pending(() => {
    bed.insert(2).verb.run()
    throw new Error('half done')
  })
  const others = [bed.insert(1), bed.insert(3)]
  bed.groups.add([...others.map(({ verb }) => verb), half.verb])
  await t.rejects(half.answer, { message: 'half done' })
  t.same(await Promise.all(others.map(({ answer }) => answer)), [1, 3])
  t.same(bed.values(), [1, 3])
  t.same(
    bed.reports.map(({ verbs, messages }) => [verbs, messages]),
    [[3, 2]],
  )
})

t.test('the others of a group with a verb that throws are run again from the beginning', async (t) => {
  const bed = makeBed(t)
  const order: number[] = []
  const noting = (value: number): ReturnType<Bed['insert']> =>
    pending(() => {
      order.push(value)
      return bed.insert(value).verb.run()
    })
  const throwing = pending(() => {
    throw new Error('no')
  })
  const [first, last] = [noting(1), noting(2)]
  bed.groups.add([first.verb, throwing.verb, last.verb])
  await t.rejects(throwing.answer, { message: 'no' })
  t.same(await Promise.all([first.answer, last.answer]), [1, 2])
  t.same(order, [1, 1, 2], 'what ran was undone and ran again; what came behind goes next')
  t.same(sizes(bed), [2, 1])
  t.same(bed.values(), [1, 2])
})

t.test('a commit that fails rejects the whole group and leaves nothing', async (t) => {
  const bed = makeBed(t)
  // A deferred foreign key is looked at by the commit alone.
  const orphan = pending(() => bed.database.exec('insert into bed (value, parent) values (2, 4711)'))
  const neighbour = bed.insert(1)
  bed.groups.add([neighbour.verb, orphan.verb])
  for (const { answer } of [neighbour, orphan]) await t.rejects(answer, { code: 'SQLITE_CONSTRAINT_FOREIGNKEY' })
  t.same(bed.values(), [])
  t.same(bed.reports, [])
  bed.pass(100)
  await addAll(bed, [1, 2])
  t.same(bed.values(), [1, 2], 'the next group is not disturbed')
})

t.test('when SQLite gives the transaction up, what ran is rejected and what did not run is not lost', async (t) => {
  const bed = makeBed(t)
  // What a full disk does in the middle of a statement.
  const fatal = pending(() => {
    bed.database.exec('rollback')
    throw Object.assign(new Error('database or disk is full'), { code: 'SQLITE_FULL' })
  })
  const [before, after] = [bed.insert(1), bed.insert(2)]
  bed.groups.add([before.verb, fatal.verb, after.verb])
  for (const { answer } of [before, fatal]) await t.rejects(answer, { code: 'SQLITE_FULL' })
  t.equal(await after.answer, 2)
  t.same(bed.values(), [2])
})

t.test('a transaction that cannot begin rejects all that waited', async (t) => {
  const bed = makeBed(t)
  bed.database.pragma('busy_timeout = 0')
  const other = new Sqlite(bed.database.name)
  t.teardown(() => other.close())
  other.exec('begin immediate')
  const inserts = [bed.insert(1), bed.insert(2)]
  bed.groups.add(inserts.map(({ verb }) => verb))
  for (const { answer } of inserts) await t.rejects(answer, { code: 'SQLITE_BUSY' })
  other.exec('rollback')
  bed.pass(100)
  await addAll(bed, [1])
  t.same(bed.values(), [1])
})

t.test('finishing runs what waits at once', async (t) => {
  const bed = makeBed(t)
  await addAll(bed, [1, 2, 3])
  const late = bed.insert(4)
  bed.groups.add([late.verb])
  bed.groups.finish()
  t.same(bed.values(), [1, 2, 3, 4])
  t.equal(await late.answer, 4)
})

t.test('fifty callers at once share commits: at least ten messages in each', async (t) => {
  const { store, metrics } = await openTestStore(locationIn(t.testdir({})))
  t.teardown(() => store.close())
  const perCaller = 20
  const callers = 50
  await Promise.all(
    Array.from({ length: callers }, async () => {
      for (let count = 0; count < perCaller; count++) await acceptOne(store)
    }),
  )
  const figures = async () => {
    const { values } = await metrics.storeMessagesPerCommit.get()
    const figure = (suffix: string) => values.find(({ metricName }) => metricName?.endsWith(suffix))?.value ?? 0
    return { messages: figure('_sum'), commits: figure('_count') }
  }
  await until('every commit is reported', async () => (await figures()).messages === callers * perCaller)
  const { messages, commits } = await figures()
  t.ok(messages / commits >= 10, `${messages} messages in ${commits} commits`)
  t.equal((await store.queueSummary(Date.now())).waiting, callers * perCaller)
})

const mebibyte = 1_024 * 1_024

function makeLog(t: Test) {
  const { database } = makeBed(t)
  database.pragma('wal_autocheckpoint = 0')
  database.exec('create table filler (bytes blob)')
  const fill = (mebibytes: number): void => {
    const add = database.prepare('insert into filler values (?)')
    for (let count = 0; count < mebibytes; count++) add.run(Buffer.alloc(mebibyte, count))
  }
  const look = () => {
    const [state] = database.pragma('wal_checkpoint(noop)') as { log: number; checkpointed: number }[]
    return { log: state?.log ?? 0, left: (state?.log ?? 0) - (state?.checkpointed ?? 0) }
  }
  return { database, fill, look }
}

t.test('the log is moved into the database above 4 MiB, and cut when it grew above its limit', async (t) => {
  const { database, fill, look } = makeLog(t)
  const checkpoint = createCheckpoint(database, 8 * mebibyte)
  fill(2)
  checkpoint()
  t.ok(look().left > 0, 'a small log is left alone')
  fill(4)
  checkpoint()
  t.equal(look().left, 0, 'a large one is moved')
  const reader = new Sqlite(database.name, { readonly: true })
  t.teardown(() => reader.close())
  reader.exec('begin')
  reader.prepare('select count(*) from filler').get()
  fill(10)
  checkpoint()
  t.ok(look().left > 0, 'a reader keeps it, and is not waited for')
  reader.exec('commit')
  checkpoint()
  t.equal(look().log, 0, 'then it is cut')
})

t.test('what a backup left behind in the log is moved by another thread', async (t) => {
  const { database, fill, look } = makeLog(t)
  const checkpoint = createCheckpoint(database, 24 * mebibyte)
  fill(40)
  checkpoint()
  t.ok(look().left > 0, 'not by this one')
  fill(1)
  t.ok(await until('it is moved', () => look().left * PAGE < 2 * mebibyte), 'while this one commits')
  checkpoint()
  t.equal(look().log, 0, 'and cut')
})

t.test('a disk that has become slow is seen at once, however long it was fast', async (t) => {
  const times = createCommitTimes(createMetrics())
  t.equal(times.meanMilliseconds(), null)
  const hear = (count: number, seconds: number): void => {
    for (let n = 0; n < count; n++) times.hear({ verbs: 1, messages: 1, seconds })
  }
  hear(10_000, 0.003)
  t.equal(times.meanMilliseconds()?.toFixed(3), '3.000')
  hear(100, 2)
  t.equal(times.meanMilliseconds(), 2_000)
})
