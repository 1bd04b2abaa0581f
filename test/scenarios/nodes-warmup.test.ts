/**
 * The cap of a warming IP holds wherever the IP is: it moves by a kill and by a drain, and no more goes out than the cap.
 * A suspension that one node was told holds on the other one, and moves along. nodes/README.md "Egress IPs".
 */
import t, { type Test } from 'tap'
import { startNodeCluster, type ClusterNode, type NodeCluster } from '../support/node-cluster.ts'
import { skipWithoutPostgres } from '../support/postgres-cluster.ts'
import { until } from '../support/until.ts'

const CAP = 50
/** Each time, of three. */
const MAILS = 20
const WARMUP = {
  'warmup.d/50-test.yaml': {
    curves: {
      test: { stages: [CAP], smoothing: { min_burst: CAP, hourly_fraction: 1 }, provider_share: { default: 1 } },
    },
    defaults: { curve: 'test' },
  },
}

t.setTimeout(0)

t.test('a warming IP that moves', { skip: skipWithoutPostgres }, async (t) => {
  const cluster = await startNodeCluster(t, { count: 2, ofIp: {}, files: WARMUP })
  const [one, two] = cluster.nodes
  if (one === undefined || two === undefined) return
  const { ip } = one
  const { owners, sink } = cluster
  const started = await one.api.post(`/ips/${ip}/warmup`, { target_daily_volume: CAP, force: true })
  t.equal(started.status, 200, JSON.stringify(started.body))
  /** And are recorded: what a kill leaves in doubt is sent once more, which costs as much again. */
  const arrived = (count: number) =>
    until(`${count} are delivered`, async () => {
      const [row] = await cluster.postgres.query(
        `select count(*) as delivered from messages where state = 'delivered'`,
        cluster.database,
      )
      return Number(row?.['delivered']) >= count
    })

  await send(cluster, two, 'first')
  await arrived(MAILS)
  t.pass('a node that sends from no IP of the pool accepts its mail, and the other one finds it')
  await one.server.kill()
  await until('the IP has moved', async () => (await owners())[two.nodeId]?.includes(ip) === true)
  await send(cluster, two, 'second')
  await arrived(2 * MAILS)
  await one.server.start()
  await two.api.post(`/admin/nodes/${two.nodeId}/drain`, {})
  await until('the IP has moved back', async () => (await owners())[one.nodeId]?.includes(ip) === true)
  await send(cluster, one, 'third')
  await arrived(CAP)
  const [day] = await cluster.postgres.query(
    `select cap, granted from warmup_days where ip = '${ip}' and isp = '*'`,
    cluster.database,
  )
  t.same([Number(day?.['cap']), Number(day?.['granted'])], [CAP, CAP])
  await until('the rest waits for another day', async () => {
    const [row] = await cluster.postgres.query(
      `select count(*) as waiting from messages where state = 'waiting'`,
      cluster.database,
    )
    return Number(row?.['waiting']) === 3 * MAILS - CAP
  })
  t.equal(sink.arrivals.size, CAP)

  await two.api.post(`/admin/nodes/${two.nodeId}/drain`, { draining: false })
  await suspendElsewhere(t, cluster, one, two)
})

async function send({ domains }: NodeCluster, { api }: ClusterNode, name: string): Promise<void> {
  const recipients = Array.from({ length: MAILS }, (_, index) => ({
    to: `${name}-${index}@${domains[index % domains.length]}`,
  }))
  const post = () =>
    api.post('/email/batch', { from: 'shop@acme.test', subject: 'Order', text: 'On its way', recipients })
  // What another node has changed is known within 2 s.
  await until('it is accepted', async () => (await post()).status === 200)
}

async function suspendElsewhere(t: Test, cluster: NodeCluster, one: ClusterNode, two: ClusterNode): Promise<void> {
  const { ip } = one
  const suspended = await two.api.post(`/admin/ips/${ip}/suspend`, { reason: 'listed' })
  t.equal(suspended.status, 200, JSON.stringify(suspended.body))
  const statusBy = async ({ api }: ClusterNode): Promise<unknown> => {
    const { body } = await api.get(`/ips/${ip}`)
    return (body['data'] as { status: string }).status
  }
  await until('its owner knows', async () => (await statusBy(one)) === 'suspended')
  const elsewhere = [
    await two.api.post('/admin/paths/resume', { ip }),
    await two.api.post(`/admin/ips/${ip}/resume`, {}),
    await two.api.post(`/admin/ips/${ip}/suspend`, { provider: 'google', reason: 'asked' }),
  ]
  for (const { status, body } of elsewhere) {
    t.match(
      { status, body },
      { status: 409, body: { error: { details: `${ip}: the node ${one.nodeId} sends from it` } } },
    )
  }
  const { body } = await two.api.post('/admin/paths/resume', { dry_run: true })
  t.match(body, { data: { dry_run: true, node: two.nodeId } }, 'it speaks of its own paths')
  await one.api.post(`/admin/nodes/${one.nodeId}/drain`, {})
  await until('the IP has moved', async () => (await cluster.owners())[two.nodeId]?.includes(ip) === true)
  await until('it is suspended there', async () => (await statusBy(two)) === 'suspended')
  t.pass('a suspension travels with the IP')
}
