/**
 * Several stores on one PostgreSQL: each row is claimed once, events are numbered as they are committed, nothing
 * deadlocks, and who was declared dead commits nothing any more. store/README.md "Several nodes".
 */
import { spawn } from 'node:child_process'
import { once, type EventEmitter } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import t, { type Test } from 'tap'
import { DAY, MINUTE, SECOND } from '../../src/base/clock.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import type { ClaimedMessage } from '../../src/store/records/claim-records.ts'
import type { BeatRequest } from '../../src/store/records/node-records.ts'
import type { ForgetRequest, ForgetStep } from '../../src/store/records/retention-records.ts'
import type { Store } from '../../src/store/store.ts'
import { claimMessages } from '../support/claim-messages.ts'
import { skipWithoutPostgres, type PostgresCluster } from '../support/postgres-cluster.ts'
import { startPostgresProxy } from '../support/postgres-proxy.ts'
import { randomSource } from '../support/random-source.ts'
import { until } from '../support/until.ts'
import { openTestStore } from './sqlite-support.ts'
import { postgresLocation, startWithTables } from './postgres-support.ts'
import {
  acceptOne,
  acceptRequest,
  claim,
  deferredUntil,
  delivered,
  LEASE,
  lookUp,
  newMessage,
  NOW,
  outcomeRecord,
  POOL,
  rowClaim,
} from './store-samples.ts'
import { ipRecord } from './warmup-samples.ts'

/** All that has ended is over. */
const LATER = NOW + DAY
const OWNER = newIdentifier('key', NOW)
const IS_FULL = process.env['TEST_SCALE'] === 'full'
const CLAIMERS = 8
const ROWS = IS_FULL ? 20_000 : 2_000
const MIXED_MILLISECONDS = IS_FULL ? 10 * MINUTE : 4 * SECOND
const KEYS = IS_FULL ? 1_000 : 60
const EVENTS = IS_FULL ? 100_000 : 1_500
const AT_ONCE = 100
/** As a session may stand still within a transaction, and what a busy machine takes. */
const LONGEST_TURN = 6_000

t.setTimeout(0)

if (skipWithoutPostgres !== false) t.plan(0, skipWithoutPostgres)
else {
  const { cluster, like } = await startWithTables(t)
  const bed = (t: Test, count: number) => openNodes(t, cluster, like, count)
  await t.test('8 claimers on 2 nodes get each row once', async (t) => claimTogether(t, await bed(t, 2)))
  await t.test('one idempotency key to two nodes makes one message', async (t) => repeatTogether(t, await bed(t, 2)))
  await t.test('all verbs at once on 3 nodes: no deadlock', async (t) => mixVerbs(t, await bed(t, 3), cluster))
  await t.test('who follows events sees each once, in order', async (t) => followEvents(t, await bed(t, 3)))
  await t.test('a dead node commits nothing, and what it held is due', async (t) => declareDead(t, await bed(t, 2)))
  await t.test('a start frees what its own node held, and nothing else', async (t) =>
    startAgain(t, await bed(t, 2), cluster),
  )
  await t.test('a retry that keeps its IP is left to who owns that', async (t) => keepIp(t, await bed(t, 2)))
  await t.test('a retry that comes into another pool is left to nobody', async (t) => movePools(t, await bed(t, 2)))
  await t.test('an IP belongs to one living node', async (t) => ownIps(t, await bed(t, 2)))
  await t.test('a dead node that an operator removed commits nothing', async (t) => goOnRemoved(t, await bed(t, 2)))
  await t.test('an earlier start of a node, cut off, commits nothing and ends', async (t) =>
    startElsewhere(t, await bed(t, 2), cluster),
  )
  await t.test('who stands still in the middle of what it sends', async (t) => stallMidway(t, await bed(t, 2)))
  await t.test('a node that stands still within a transaction', async (t) => standStill(t, await bed(t, 2), cluster))
}

interface Node {
  nodeId: string
  store: Store
  epoch: number
  deaths: Error[]
}

interface Bed {
  url: string
  database: string
  nodes: Node[]
  one: Node
  two: Node
}

async function openNode(t: Test, url: string, nodeId: string): Promise<Node> {
  const { store, deaths } = await openTestStore({ ...postgresLocation(url), nodeId })
  t.teardown(() => store.close().catch(() => undefined))
  return { nodeId, store, deaths, epoch: (await store.beginEpoch(NOW, NOW + MINUTE, nodeId)).epoch }
}

async function openNodes(t: Test, cluster: PostgresCluster, like: string, count: number): Promise<Bed> {
  const database = await cluster.createDatabase(like)
  const url = cluster.url(database)
  const nodes: Node[] = []
  for (let number = 1; number <= count; number += 1) nodes.push(await openNode(t, url, `node-${number}`))
  const [one, two] = nodes
  if (one === undefined || two === undefined) throw new Error('two nodes at least')
  return { url, database, nodes, one, two }
}

async function fill({ store }: Node, rows: number): Promise<void> {
  for (let done = 0; done < rows; done += AT_ONCE) {
    const messages = Array.from({ length: Math.min(AT_ONCE, rows - done) }, (_, index) =>
      newMessage({ to: { name: null, address: `reader-${done + index}@example.com` } }),
    )
    await store.acceptMessages(acceptRequest({ messages }))
  }
}

async function claimTogether(t: Test, { nodes, one }: Bed): Promise<void> {
  await fill(one, ROWS)
  const claimed = new Map<string, number>()
  await Promise.all(
    Array.from({ length: CLAIMERS }, async (_, index) => {
      const { store, epoch } = nodes[index % nodes.length] ?? one
      for (;;) {
        const rows = await claim(store, epoch, NOW, 50)
        if (rows.length === 0) return
        for (const { id } of rows) claimed.set(id, (claimed.get(id) ?? 0) + 1)
      }
    }),
  )
  t.equal(claimed.size, ROWS)
  t.same([...new Set(claimed.values())], [1])
}

async function repeatTogether(t: Test, { one, two }: Bed): Promise<void> {
  for (let number = 0; number < KEYS; number += 1) {
    const entry = { apiKeyId: OWNER, key: `order-${number}`, fingerprint: Buffer.alloc(32, 7) }
    const idempotency = { entry, answer: { status: 200, body: '{}' } }
    const accept = ({ store }: Node) => store.acceptMessages(acceptRequest({ messages: [newMessage()], idempotency }))
    const answers = await Promise.all([accept(one), accept(two)])
    const kinds = answers.map(({ kind }) => kind).toSorted()
    if (kinds.join() !== 'accepted,replayed') t.fail(`${number}: ${kinds.join()}`)
  }
  t.equal(await one.store.countQueued(), KEYS)
}

async function mixVerbs(t: Test, { nodes, database }: Bed, cluster: PostgresCluster): Promise<void> {
  const random = randomSource(25)
  const deadline = performance.now() + MIXED_MILLISECONDS
  const did = { accepted: 0, claimed: 0, canceled: 0, expired: 0, forgotten: 0 }
  const forget = async (work: (request: ForgetRequest) => Promise<ForgetStep>): Promise<void> => {
    did.forgotten += (await work({ before: LATER, now: LATER, after: 0, limit: 50 })).removed
  }
  const steps = [
    async (node: Node) => {
      const rows = 1 + random.integer(20)
      await fill(node, rows)
      did.accepted += rows
    },
    async ({ store, epoch }: Node) => {
      const rows = await claim(store, epoch, NOW, 1 + random.integer(30))
      did.claimed += rows.length
      await store.markDotSent(epoch, rows)
      const outcomes = rows.map((row, index) => ({
        ...outcomeRecord(row, index % 3 === 0 ? deferredUntil(NOW + index) : delivered, {
          at: NOW + random.integer(1e6),
        }),
        transcript: '> EHLO',
      }))
      await store.recordOutcomes({ epoch, now: NOW, outcomes })
    },
    async ({ store, epoch }: Node) => {
      const rows = await claim(store, epoch, NOW, 5)
      await store.unclaim({ epoch, rows: rows.map((row) => ({ ...rowClaim(row), nextAt: NOW })) })
    },
    async ({ store }: Node) => {
      const canceled = await store.cancelMessage(await acceptOne(store), NOW)
      if (canceled?.kind === 'canceled') did.canceled += 1
    },
    async ({ store }: Node) => {
      await acceptOne(store, {}, { expiresAt: NOW + SECOND })
      did.expired += (await store.expireDue(NOW + MINUTE, 50)).length
    },
    ({ store }: Node) => forget(store.forgetEvents),
    ({ store }: Node) => forget(store.forgetTranscripts),
    ({ store }: Node) => forget((request) => store.forgetMessages({ ...request, linksBefore: LATER })),
    async ({ store }: Node) => {
      const { contents } = await store.overdueContents({ before: LATER, now: LATER, after: 0, limit: 50 })
      const over = contents.map(({ contentId }) => ({ contentId, links: null }))
      if (over.length > 0) did.forgotten += (await store.forgetContents({ before: LATER, contents: over })).removed
    },
    ({ store }: Node) => store.assignRoutes([{ domain: 'example.com', route: 'mx', isp: 'example' }]),
  ]
  let calls = 0
  await Promise.all(
    nodes.flatMap((node) =>
      Array.from({ length: 3 }, async () => {
        while (performance.now() < deadline) {
          await steps[random.integer(steps.length)]?.(node)
          calls += 1
        }
      }),
    ),
  )
  const [row] = await cluster.query(`select deadlocks from pg_stat_database where datname = '${database}'`)
  t.equal(Number(row?.['deadlocks']), 0)
  t.same(
    nodes.flatMap(({ deaths }) => deaths),
    [],
  )
  for (const [what, count] of Object.entries(did)) t.ok(count > 0, `${count} ${what}`)
  t.comment(`${calls} calls`)
}

async function followEvents(t: Test, { nodes, one }: Bed): Promise<void> {
  let isOver = false
  const seen: number[] = []
  // The present end, before there is anything to follow.
  let position = (await one.store.eventPosition(null, 0)) ?? 0
  const follow = async (): Promise<void> => {
    for (;;) {
      const wasOver = isOver
      const found = await one.store.eventsAfter(position, 500)
      seen.push(...found.map((event) => event.position))
      position = found.at(-1)?.position ?? position
      if (found.length === 0 && wasOver) return
    }
  }
  const following = follow()
  await Promise.all(nodes.map((node) => fill(node, Math.ceil(EVENTS / nodes.length))))
  isOver = true
  await following
  t.equal(seen.length, nodes.length * Math.ceil(EVENTS / nodes.length))
  t.same(
    seen,
    seen.toSorted((left, right) => left - right),
  )
  t.equal(new Set(seen).size, seen.length)
}

async function declareDead(t: Test, { one, two }: Bed): Promise<void> {
  await fill(one, 3)
  const [plain, marked, late] = await claim(one.store, one.epoch)
  if (plain === undefined || marked === undefined || late === undefined) throw new Error('nothing was claimed')
  await one.store.markDotSent(one.epoch, [marked])
  const end = { nodeId: one.nodeId, epoch: one.epoch, state: 'dead' as const, by: two.nodeId }
  t.equal(await two.store.endNode({ ...end, epoch: one.epoch - 1 }), false, 'an earlier start of it')
  t.equal(await two.store.endNode(end), true)
  t.equal(await two.store.endNode(end), false, 'it is dead already')
  const free = { now: NOW + SECOND, uncertainAt: NOW + MINUTE, limit: 500 }
  t.match(await two.store.freeAbandoned(free), { recovered: 2, uncertain: 1 })
  t.match(await lookUp(two.store, plain.id), { nextAttemptAt: NOW + SECOND, isPossibleDuplicate: false })
  t.match(await lookUp(two.store, marked.id), { nextAttemptAt: NOW + MINUTE, isPossibleDuplicate: true })
  await t.rejects(one.store.markDotSent(one.epoch, [late]), { code: 'unavailable' })
  await until('the process ends', () => one.deaths.length > 0)
  const outcomes = [outcomeRecord(plain, delivered)]
  await t.rejects(one.store.recordOutcomes({ epoch: one.epoch, now: NOW, outcomes }), { code: 'unavailable' })
  t.match(await lookUp(two.store, plain.id), { state: 'queued' })
}

async function startAgain(t: Test, { url, database, one, two }: Bed, cluster: PostgresCluster): Promise<void> {
  await fill(one, 2)
  await one.store.beat(beat(one, { takes: ['192.0.2.7'] }))
  const [first] = await claim(one.store, one.epoch, NOW, 1)
  const [second] = await claim(two.store, two.epoch, NOW, 1)
  if (first === undefined || second === undefined) throw new Error('nothing was claimed')
  const message = /another Sternpost works with this database as the node node-1; stop it first/
  await t.rejects(openNode(t, url, 'node-1'), { message })
  await t.rejects(openTestStore(postgresLocation(url)), { message: /another Sternpost works with this database; stop/ })
  await one.store.close()
  const { store } = await openNode(t, url, 'node-1')
  t.same(await cluster.query('select ip from ip_owners', database), [], 'it has to take its IPs anew')
  t.match(await lookUp(store, first.id), { state: 'queued' })
  t.match(await lookUp(store, second.id), { state: 'sending' })
  await store.renewLeases(two.epoch, [second], NOW + LEASE)
  t.equal(await store.recoverLapsedLeases(NOW + 2 * LEASE, NOW, NOW, 0), 0, 'leases of another node are that one’s')
}

async function goOnRemoved(t: Test, { one, two }: Bed): Promise<void> {
  await two.store.endNode({ nodeId: one.nodeId, epoch: one.epoch, state: 'dead', by: two.nodeId })
  t.equal(await two.store.forgetNode(one.nodeId), true)
  await t.rejects(acceptOne(one.store), { code: 'unavailable' })
  await until('the process ends', () => one.deaths.length > 0)
}

async function startElsewhere(t: Test, { url, database }: Bed, cluster: PostgresCluster): Promise<void> {
  const proxy = await startPostgresProxy(cluster.port)
  t.teardown(() => proxy.close())
  const earlier = await openNode(t, cluster.url(database, proxy.port), 'node-3')
  await acceptOne(earlier.store)
  proxy.swallow(true)
  await cluster.query(`
    select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and classid = 739416
      and objid::int = hashtext('node-3')`)
  const later = await openNode(t, url, 'node-3')
  await acceptOne(later.store)
  proxy.swallow(false)
  proxy.cutAll()
  const hasEnded = async (): Promise<boolean> => {
    await t.rejects(acceptOne(earlier.store), { code: 'unavailable' })
    return earlier.deaths.length > 0
  }
  await until('the earlier start ends', hasEnded, 30_000)
  await acceptOne(later.store)
  t.same(later.deaths, [])
}

/** Neither idle nor working: a statement has come, and not yet the end of what was sent. */
async function stallMidway(t: Test, { one, two, url }: Bed): Promise<void> {
  const stalled = new pg.Client({ connectionString: url })
  const lost = new Promise((resolve) => stalled.on('error', resolve))
  await stalled.connect()
  t.teardown(() => stalled.end().catch(() => undefined))
  await stalled.query('begin')
  const { connection } = stalled as unknown as { connection: Record<string, (message?: object) => void> }
  connection['parse']?.({ text: `select begin_writing('${one.nodeId}')` })
  connection['bind']?.({})
  connection['execute']?.({})
  connection['flush']?.()
  await once(connection as unknown as EventEmitter, 'dataRow')
  const startedAt = performance.now()
  await Promise.all([acceptOne(one.store), acceptOne(two.store)])
  const took = performance.now() - startedAt
  t.ok(took > 2 * SECOND && took < LONGEST_TURN, `${Math.round(took)} ms`)
  await lost
}

function beat({ nodeId, epoch }: Node, change: Partial<BeatRequest>): BeatRequest {
  return { nodeId, epoch, now: NOW, version: '1', configHash: '', takes: [], releases: [], ...change }
}

async function keepIp(t: Test, { one, two }: Bed): Promise<void> {
  const ip = '127.0.0.11'
  await one.store.beat(beat(one, { takes: [ip] }))
  await fill(one, 3)
  const rows = await claim(one.store, one.epoch)
  const [kept, waits, bound] = rows.map((row) => outcomeRecord(row, deferredUntil(NOW), { ip }))
  if (kept === undefined || waits === undefined || bound === undefined) throw new Error('nothing was claimed')
  const outcomes = [
    { ...kept, keepIpUntil: 0 },
    { ...waits, keepIpUntil: NOW + MINUTE },
    { ...bound, keepIpUntil: NOW + DAY },
  ]
  await one.store.recordOutcomes({ epoch: one.epoch, now: NOW, outcomes })
  const claimBy = ({ store, epoch }: Node, now: number): Promise<ClaimedMessage[]> =>
    claimMessages(store, { now, epoch, leaseUntil: now + LEASE, pools: [POOL], limit: 10 })
  t.same(await claimBy(two, NOW), [])
  t.match(await claimBy(two, NOW + 2 * MINUTE), [{ key: waits.key }], 'its time to wait for the IP is over')
  await one.store.addIpRecords([ipRecord({ ip, state: 'suspended' })])
  t.match(await claimBy(two, NOW), [{ key: kept.key }], 'an IP that sends nothing is not kept')
  await two.store.endNode({ nodeId: one.nodeId, epoch: one.epoch, state: 'dead', by: two.nodeId })
  t.match(await claimBy(two, NOW), [{ key: bound.key }], 'nobody owns the IP')
}

/** The owner of its IP may have none of that pool. */
async function movePools(t: Test, { one, two }: Bed): Promise<void> {
  const ip = '127.0.0.11'
  await one.store.beat(beat(one, { takes: [ip] }))
  const claimBy = ({ store, epoch }: Node, pool: string): Promise<ClaimedMessage[]> =>
    claimMessages(store, { now: NOW, epoch, leaseUntil: NOW + LEASE, pools: [pool], limit: 10 })
  const deferKept = async (pool: string): Promise<void> => {
    const outcomes = (await claimBy(one, pool)).map((row) => ({
      ...outcomeRecord(row, deferredUntil(NOW), { ip }),
      keepIpUntil: 0,
    }))
    await one.store.recordOutcomes({ epoch: one.epoch, now: NOW, outcomes })
    t.equal(outcomes.length, 1)
  }
  await fill(one, 1)
  await deferKept(POOL)
  t.same(await claimBy(two, POOL), [])
  const action = { kind: 'move', pool: 'second' } as const
  await one.store.actOnQueue({ filter: {}, action, now: NOW, limit: 1, isDryRun: false })
  t.equal((await claimBy(two, 'second')).length, 1, 'moved by an operator')
  await fill(one, 1)
  await deferKept(POOL)
  await one.store.moveOrphans(['third'], 'third')
  t.equal((await claimBy(two, 'third')).length, 1, 'its pool is gone')
}

async function ownIps(t: Test, { one, two }: Bed): Promise<void> {
  const ownersBy = async (node: Node, change: Partial<BeatRequest>): Promise<string[]> => {
    const { owners } = await node.store.beat(beat(node, change))
    return owners.map(({ ip, nodeId }) => `${ip} ${nodeId}`)
  }
  t.same(await ownersBy(one, { takes: ['192.0.2.1'] }), ['192.0.2.1 node-1'])
  t.same(await ownersBy(two, { takes: ['192.0.2.1', '192.0.2.2'] }), ['192.0.2.1 node-1', '192.0.2.2 node-2'])
  t.same(await ownersBy(two, { releases: ['192.0.2.1'] }), ['192.0.2.1 node-1', '192.0.2.2 node-2'])
  t.same(await ownersBy(one, { releases: ['192.0.2.1'] }), ['192.0.2.2 node-2'])
  t.same(await ownersBy(two, { takes: ['192.0.2.1'] }), ['192.0.2.1 node-2', '192.0.2.2 node-2'])
  await one.store.endNode({ nodeId: two.nodeId, epoch: two.epoch, state: 'dead', by: one.nodeId })
  t.same(await ownersBy(one, { takes: ['192.0.2.2'] }), ['192.0.2.2 node-1'])
  const { nodes } = await one.store.nodesSeen()
  t.match(nodes, [
    { nodeId: 'node-1', state: 'living' },
    { nodeId: 'node-2', state: 'dead', endedBy: 'node-1' },
  ])
  t.equal(await one.store.forgetNode('node-1'), false, 'it lives')
  t.equal(await one.store.forgetNode('node-2'), true)
}

/** Stopped between its first question and its commit, it has the turn of all. */
async function standStill(t: Test, { one, url, database }: Bed, cluster: PostgresCluster): Promise<void> {
  const entry = fileURLToPath(new URL('./accept-forever.ts', import.meta.url))
  const location = JSON.stringify({ ...postgresLocation(url), nodeId: 'node-3' })
  const child = spawn(process.execPath, [entry, location], { stdio: ['ignore', 'pipe', 'ignore'] })
  t.teardown(() => child.kill('SIGKILL'))
  await once(child.stdout, 'data')
  const stopWithin = async (): Promise<boolean> => {
    child.kill('SIGSTOP')
    await sleep(50)
    const [row] = await cluster.query(`
      select count(*) as sessions from pg_stat_activity
      where datname = '${database}' and state = 'idle in transaction'`)
    if (Number(row?.['sessions']) > 0) return true
    child.kill('SIGCONT')
    await sleep(5)
    return false
  }
  await until('it is stopped within a transaction', stopWithin)
  const startedAt = performance.now()
  await acceptOne(one.store)
  const took = performance.now() - startedAt
  t.ok(took < LONGEST_TURN, `${Math.round(took)} ms`)
  child.kill('SIGCONT')
  const [code] = await once(child, 'exit')
  t.equal(code, 1, 'what it had begun is refused')
}
