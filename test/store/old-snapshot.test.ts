/**
 * Somebody holds an old snapshot of the database, so that nothing that left it can be vacuumed: what the store asks does
 * not grow with it. The small size counts the entries of indexes that are read. The full one runs 200 messages a second for half an
 * hour and tells how long claims took; TEST_MINUTES and TEST_PER_SECOND change both, TEST_SNAPSHOT=none goes without.
 */
import t, { type Test } from 'tap'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { newIdentifier } from '../../src/base/identifier.ts'
import type { Store } from '../../src/store/store.ts'
import { startPostgres, skipWithoutPostgres, type PostgresCluster } from '../support/postgres-cluster.ts'
import { postgresLocation } from './postgres-support.ts'
import { openTestStore } from './sqlite-support.ts'
import {
  acceptRequest,
  delivered,
  LEASE,
  LIFETIME,
  newMessage,
  outcomeRecord,
  POOL,
  webhookEndpoint,
} from './store-samples.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const MINUTES = Number(process.env['TEST_MINUTES'] ?? 30)
const PER_SECOND = Number(process.env['TEST_PER_SECOND'] ?? 200)
const HAS_SNAPSHOT = process.env['TEST_SNAPSHOT'] !== 'none'
/** Of the goal: a claim in a hundred may take longer. */
const MOST_MILLISECONDS = 50
const SMALL_ROUNDS = 80
/** What was leased is passed until the end of the lease. */
const WEBHOOK_LEASE = IS_FULL ? 60_000 : 3_000
const MOST_GROWTH = 1.5
const AT_ONCE = 20
const REAL_SETTINGS = { fsync: 'on', shared_buffers: '256MB', max_wal_size: '4GB' }
const COUNT_ENTRIES = 'select sum(idx_tup_read) as entries from pg_stat_user_indexes'
/** A session tells what it counted at the end of a transaction, when so much time has gone by. */
const COUNTS_EVERY = 1_000
const DEAD_ROWS = `
  select relname, n_live_tup as live, n_dead_tup as dead, pg_total_relation_size(relid) / 1048576 as megabytes
  from pg_stat_user_tables where n_live_tup + n_dead_tup > 1000 order by n_dead_tup desc limit 6`

// The runner's own limit for a file is shorter than the full size.
t.setTimeout(0)

t.test('an old snapshot', { skip: skipWithoutPostgres, timeout: (MINUTES + 5) * 60_000 }, async (t) => {
  const cluster = await startPostgres(t, { settings: IS_FULL ? REAL_SETTINGS : {} })
  const database = await cluster.createDatabase()
  const { store } = await openTestStore(postgresLocation(cluster.url(database)))
  t.teardown(() => store.close())
  const round = await createRounds(store)
  // What it sees is what was before.
  await round(AT_ONCE)
  if (HAS_SNAPSHOT) await holdSnapshot(t, cluster.url(database))
  if (IS_FULL) await runForLong(t, cluster, database, round)
  else await countEntries(t, cluster, database, round)
})

type Round = Awaited<ReturnType<typeof createRounds>>

async function countEntries(t: Test, cluster: PostgresCluster, database: string, round: Round): Promise<void> {
  const entriesOf = async (rounds: number): Promise<number> => {
    const before = await entriesSoFar(cluster, database, round)
    for (let done = 0; done < rounds; done += 1) await round(AT_ONCE)
    return (await entriesSoFar(cluster, database, round)) - before
  }
  const first = await entriesOf(SMALL_ROUNDS / 4)
  await entriesOf(SMALL_ROUNDS / 2)
  const last = await entriesOf(SMALL_ROUNDS / 4)
  t.ok(last < MOST_GROWTH * first, `${first} entries were read for the first quarter, ${last} for the last`)
}

async function runForLong(t: Test, cluster: PostgresCluster, database: string, round: Round): Promise<void> {
  const began = performance.now()
  const elapsed = (): number => (performance.now() - began) / 1_000
  let [messages, minute] = [0, 0]
  let ofMinute: number[] = []
  const all: number[] = []
  while (elapsed() < MINUTES * 60) {
    const ahead = messages / PER_SECOND - elapsed()
    if (ahead > 0) await sleep(ahead * 1_000)
    const took = await round(AT_ONCE)
    messages += AT_ONCE
    ofMinute.push(took)
    all.push(took)
    if (elapsed() < (minute + 1) * 60) continue
    minute += 1
    const tables = await cluster.query(DEAD_ROWS, database)
    const dead = tables
      .map((row) => `${row['relname']} ${row['dead']}/${row['live']} ${row['megabytes']} MB`)
      .join(', ')
    t.comment(
      `minute ${minute}: ${messages} messages; claims p50 ${share(ofMinute, 0.5)} p99 ${share(ofMinute, 0.99)} ms; dead/live rows: ${dead}`,
    )
    ofMinute = []
  }
  t.comment(
    `${messages} messages, ${all.length} claims: p50 ${share(all, 0.5)}, p99 ${share(all, 0.99)}, p99.9 ${share(all, 0.999)} ms`,
  )
  if (HAS_SNAPSHOT) t.ok(share(all, 0.99) < MOST_MILLISECONDS, 'a claim takes no longer than it may')
  t.ok(messages >= 0.9 * PER_SECOND * elapsed() || !HAS_SNAPSHOT, 'and the rate was held')
}

function share(values: readonly number[], part: number): number {
  const sorted = values.toSorted((left, right) => left - right)
  return Math.round((sorted[Math.floor(part * (sorted.length - 1))] ?? 0) * 10) / 10
}

async function entriesSoFar(cluster: PostgresCluster, database: string, round: Round): Promise<number> {
  await sleep(1.1 * COUNTS_EVERY)
  // Floors stand some seconds back.
  await round(1, 10_000)
  await round(1, 10_000)
  return Number((await cluster.query(COUNT_ENTRIES, database))[0]?.['entries'])
}

async function holdSnapshot(t: Test, url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  t.teardown(() => client.end())
  await client.query('begin isolation level repeatable read')
  await client.query('select count(*) from messages')
}

/**
 * What is made runs so many messages through every verb of their way, on a clock that is `later` than before, and tells
 * how long the claim took, in ms.
 */
async function createRounds(store: Store): Promise<(count: number, later?: number) => Promise<number>> {
  const { epoch } = await store.beginEpoch(Date.now(), Date.now())
  await store.assignRoutes([{ domain: 'example.com', route: 'site', isp: 'example.com' }])
  await store.addWebhookEndpoint(webhookEndpoint())
  const key = { pool: POOL, route: 'site', domain: 'acme.com', stream: 'transactional', isRetry: false } as const
  let from = 0
  let last = { walk: 0, look: 0 }
  let ahead = 0

  return async (count, later = 0) => {
    ahead += later
    const now = Date.now() + ahead
    const messages = Array.from({ length: count }, () =>
      newMessage({ id: newIdentifier('msg', now), expiresAt: now + LIFETIME }),
    )
    await Promise.all(messages.map((message) => store.acceptMessages(acceptRequest({ now, messages: [message] }))))
    const begun = performance.now()
    const asks = [{ key, limit: count, from }]
    const claimed = await store.claimDue({ now: now + 1, epoch, leaseUntil: now + LEASE, asks })
    const took = performance.now() - begun
    if (claimed.messages.length !== count) throw new Error(`${claimed.messages.length} of ${count} were claimed`)
    from = claimed.firstAt[0] ?? now
    await store.markDotSent(epoch, claimed.messages)
    const outcomes = claimed.messages.map((message) => {
      const record = outcomeRecord(message, delivered, { at: now })
      return { ...record, events: record.events.map((event) => ({ ...event, id: newIdentifier('evt', now), at: now })) }
    })
    await store.recordOutcomes({ epoch, now: now + 2, outcomes })
    const terms = { now: now + 3, epoch, leaseUntil: now + WEBHOOK_LEASE, limit: 100, perEndpoint: 100, busy: {} }
    const deliveries = await store.claimWebhooks(terms)
    await store.recordWebhookResults({
      epoch,
      disableAfter: null,
      results: deliveries.map((each) => succeeded(each, now)),
    })
    await store.earliestWebhookDueAt(now)
    // What goes on beside them, as often as in the program.
    if (now - last.walk > 30_000) await store.queueKeys(null, 10_000)
    if (now - last.look > 60_000) await store.recoverLapsedLeases(now - 1, now, now)
    last = { walk: now - last.walk > 30_000 ? now : last.walk, look: now - last.look > 60_000 ? now : last.look }
    return took
  }
}

function succeeded({ key, id }: { key: number; id: string }, at: number) {
  const answer = { durationMilliseconds: 5, status: 200, error: null, answer: 'ok' }
  return { key, id, at, ...answer, endedAt: at + 5, next: { kind: 'succeeded' } as const }
}
