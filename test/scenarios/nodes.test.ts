/**
 * Three nodes on one PostgreSQL under load: one is killed, one is stopped for a while, one is cut off, one drains.
 * Nothing that was answered is lost, what came twice is flagged, and the IPs move. nodes/README.md.
 */
import { X509Certificate } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { DAY, SECOND } from '../../src/base/clock.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { DEADLINE, MOST_WAITING, isDead, loadAt, settle, timeTo } from '../support/cluster-load.ts'
import { startNodeCluster, type ClusterNode, type NodeCluster } from '../support/node-cluster.ts'
import { skipWithoutPostgres } from '../support/postgres-cluster.ts'
import { randomSource } from '../support/random-source.ts'
import { MASTER_KEY } from '../support/serve-process.ts'
import { createTestAuthority } from '../support/test-authority.ts'
import { until } from '../support/until.ts'

const HOST = 'mail.sternpost.test'
const IS_FULL = process.env['TEST_SCALE'] === 'full'
const KILLS = 20
const FULL_BATCH = 50
const LEAST_RATE = 300
const STOPPED_MILLISECONDS = IS_FULL ? 60_000 : 0
const LONGEST_ANSWER = 200
/** A busy machine takes longer. */
const REAPED_WITHIN = IS_FULL ? 20_000 : 60_000
const MOVED_WITHIN = IS_FULL ? 30_000 : 60_000
/** What is remembered of others' changes is at most so old, and a busy machine takes its time. */
const SEEN_WITHIN = 4_000

t.setTimeout(0)

t.test('three nodes', { skip: skipWithoutPostgres }, async (t) => {
  const random = randomSource(25)
  const cluster = await startNodeCluster(t, {
    count: 3,
    answerDelayMilliseconds: () => random.integer(LONGEST_ANSWER),
    // Nobody answers there: what is shown was ordered by another node.
    settings: { tls: { acme: { directory: 'https://127.0.0.1:1/dir' } } },
  })
  await t.test('what one changes, the others know soon', (t) => changeKeys(t, cluster))
  await t.test('a certificate that one orders, all show', (t) => changeCertificate(t, cluster))
  if (IS_FULL) {
    await t.test('one is killed, again and again', (t) => killAgain(t, cluster))
    await t.test('one is stopped, declared dead, and goes on', async (t) => {
      const node = await holder(cluster)
      await underLoad(t, cluster, cluster.nodes, () => stopOne(t, cluster, node))
    })
    await t.test('one is cut off from PostgreSQL', async (t) => {
      const node = await holder(cluster)
      await underLoad(t, cluster, others(cluster, node), () => cutOff(t, cluster, node))
    })
  } else {
    const [, two, three] = cluster.nodes
    await t.test('one is killed and another one is stopped, which goes on when it was declared dead', (t) =>
      underLoad(t, cluster, cluster.nodes, async () => {
        await Promise.all([killOne(t, cluster, two), stopOne(t, cluster, three)])
      }),
    )
  }
  await t.test('one drains, and stops without a refused request but for the time being', (t) =>
    drainOne(t, cluster, cluster.nodes[0]),
  )
})

async function changeCertificate(t: Test, { nodes, postgres, database }: NodeCluster): Promise<void> {
  const authority = createTestAuthority()
  t.teardown(() => authority.close())
  const { chain, key } = authority.issue([HOST])
  const sealedKey = createKeyRing(Buffer.from(MASTER_KEY, 'base64')).seal(key, `certificate:${HOST}`)
  const values = `'["${HOST}"]', '${chain}', '\\x${sealedKey.toString('hex')}', ${Date.now() + DAY}`
  await postgres.query(
    `insert into certificates (name, names, chain, sealed_key, renew_at, failures, next_try_at)
     values ('${HOST}', ${values}, 0, 0)
     on conflict (name) do update set chain = excluded.chain, sealed_key = excluded.sealed_key,
       renew_at = excluded.renew_at`,
    database,
  )
  const endsAt = new X509Certificate(chain).validToDate.getTime() / SECOND
  for (const { server, nodeId } of nodes) {
    const shown = `certificate="DNS:${HOST}"} ${endsAt}`
    const isShown = async (): Promise<boolean> => (await (await fetch(server.metricsUrl)).text()).includes(shown)
    t.ok(await until(`the certificate at ${nodeId}`, isShown), nodeId)
  }
}

async function changeKeys(t: Test, { nodes, domains }: NodeCluster): Promise<void> {
  const [one, two] = nodes
  if (one === undefined || two === undefined) return
  const created = await one.api.post('/keys', { name: 'shop', mode: 'live', scopes: ['send'], domains: [] })
  const { key, id } = created.body['data'] as { key: string; id: string }
  let sends = 0
  const send = async (): Promise<number> => {
    const answer = await fetch(`${two.server.baseUrl}/v1/email/send`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({
        from: 'shop@acme.test',
        to: `key-${sends++}@${domains[0]}`,
        subject: 'Order',
        text: 'On its way',
      }),
    })
    return answer.status
  }
  t.equal(await send(), 200)
  await one.api.delete(`/keys/${id}`)
  const revokedAt = performance.now()
  await until('the other node refuses it', async () => (await send()) === 401)
  const took = performance.now() - revokedAt
  t.ok(took < SEEN_WITHIN, `${Math.round(took)} ms`)
}

const pass =
  (nodeId: string, { owners }: NodeCluster, ip: string) =>
  async (): Promise<boolean> => {
    const found = await owners()
    return found[nodeId] === undefined && Object.values(found).flat().includes(ip)
  }

async function isBusy({ postgres, database }: NodeCluster, { nodeId }: ClusterNode): Promise<boolean> {
  const held = await postgres.query(
    `select 1 from messages join nodes on nodes.epoch = messages.lease_epoch
    where messages.state = 'sending' and lease_until > 0 and node_id = '${nodeId}' limit 1`,
    database,
  )
  return held.length > 0
}

/** A node that sends from some IP. */
async function holder({ nodes, owners }: NodeCluster): Promise<ClusterNode | undefined> {
  const found = await owners()
  return nodes.findLast(({ nodeId }) => found[nodeId] !== undefined)
}

const others = ({ nodes }: NodeCluster, node: ClusterNode | undefined): ClusterNode[] =>
  nodes.filter((each) => each !== node)

/** While it happens, clients post at these nodes; then what they were told is true. */
async function underLoad(
  t: Test,
  cluster: NodeCluster,
  nodes: readonly ClusterNode[],
  happens: () => Promise<void>,
): Promise<void> {
  const loads = loadAt(t, cluster, nodes)
  await happens()
  await settle(t, cluster, loads)
}

/** All the while mail is accepted and sent, and as much waits as may. */
async function killAgain(t: Test, cluster: NodeCluster): Promise<void> {
  const { sink } = cluster
  const twiceBefore = [...sink.arrivals.values()].filter((copies) => copies > 1).length
  const [before, startedAt] = [sink.arrivals.size, performance.now()]
  const loads = loadAt(t, cluster, cluster.nodes, FULL_BATCH)
  const accepted = (): number => loads.reduce((sum, load) => sum + load.accepted.size, 0)
  const waiting = (): number => accepted() - (sink.arrivals.size - before)
  await until('so many wait', () => waiting() >= MOST_WAITING - KILLS * FULL_BATCH, DEADLINE)
  let open = 0
  for (let kill = 1; kill <= KILLS; kill += 1) open += await killOne(t, cluster, await holder(cluster))
  const rate = (1_000 * (sink.arrivals.size - before)) / (performance.now() - startedAt)
  t.comment(`${accepted()} accepted, ${Math.round(rate)} arrived a second, ${waiting()} wait, ${open} connections cut`)
  t.ok(rate >= LEAST_RATE, 'as much mail as was asked for')
  const twice = (await settle(t, cluster, loads)) - twiceBefore
  t.ok(twice <= open, `${twice} duplicates of ${open} connections`)
}

/** Resolves with the connections that it had. */
async function killOne(t: Test, cluster: NodeCluster, node: ClusterNode | undefined): Promise<number> {
  if (node === undefined) return 0
  await until('it sends', () => isBusy(cluster, node), DEADLINE)
  await sleep(500)
  const held = (await cluster.owners())[node.nodeId] ?? []
  const open = held.reduce((sum, ip) => sum + cluster.sink.connections(ip), 0)
  await node.server.kill()
  const freed = timeTo('its rows are free', async () => !(await isBusy(cluster, node)))
  const moved = await timeTo('its IPs have moved', pass(node.nodeId, cluster, held[0] ?? node.ip))
  t.ok((await freed) < REAPED_WITHIN, `rows after ${Math.round(await freed)} ms`)
  t.ok(moved < MOVED_WITHIN, `IP after ${Math.round(moved)} ms`)
  await node.server.start()
  return open
}

async function stopOne(t: Test, cluster: NodeCluster, node: ClusterNode | undefined): Promise<void> {
  if (node === undefined) return
  await until('it sends', () => isBusy(cluster, node), DEADLINE)
  const { processId } = node.server
  process.kill(processId, 'SIGSTOP')
  const [dead] = await Promise.all([timeTo('it is declared dead', isDead(cluster, node)), sleep(STOPPED_MILLISECONDS)])
  process.kill(processId, 'SIGCONT')
  const ended = await timeTo('it ends', async () => node.server.exitCode() !== null)
  t.equal(node.server.exitCode(), 1)
  t.comment(`dead after ${Math.round(dead)} ms, and ended ${Math.round(ended)} ms after it went on`)
  await node.server.start()
}

async function cutOff(t: Test, cluster: NodeCluster, node: ClusterNode | undefined): Promise<void> {
  if (node === undefined) return
  node.proxy.swallow(true)
  await until('it is declared dead', isDead(cluster, node))
  node.proxy.swallow(false)
  node.proxy.cutAll()
  await until('it ends', () => node.server.exitCode() !== null, DEADLINE)
  t.equal(node.server.exitCode(), 1)
  await node.server.start()
}

async function drainOne(t: Test, cluster: NodeCluster, node: ClusterNode | undefined): Promise<void> {
  if (node === undefined) return
  const { api, server, nodeId } = node
  await Promise.all(others(cluster, node).map((each) => each.api.post(`/admin/nodes/${each.nodeId}/drain`, {})))
  await until('all IPs are its own', async () => (await cluster.owners())[nodeId]?.length === 3)
  for (const each of others(cluster, node)) {
    await each.api.post(`/admin/nodes/${each.nodeId}/drain`, { draining: false })
  }
  const loads = loadAt(t, cluster, cluster.nodes)
  await until('it sends', () => isBusy(cluster, node), DEADLINE)
  t.equal((await api.post(`/admin/nodes/${nodeId}/drain`, {})).status, 200)
  await until('it holds nothing', async () => (await cluster.owners())[nodeId] === undefined, DEADLINE)
  t.notOk(await isBusy(cluster, node))
  t.equal((await fetch(`${server.baseUrl}/health`)).status, 503, 'a balancer turns away')
  const [stopping] = loads
  await stopping?.stop()
  t.ok(stopping?.refusals.length, 'it took no mail')
  t.ok(
    stopping?.refusals.every(({ status, retryAfter }) => status === 503 && retryAfter !== null),
    'and said when to come again',
  )
  t.equal(await server.stop(), 0)
  await settle(t, cluster, loads)
}
