/** Two nodes on one PostgreSQL: one orders, and the authority finds the proof at the other. */
import t from 'tap'
import { SECOND } from '../../src/base/clock.ts'
import { startNodeCluster } from '../support/node-cluster.ts'
import { skipWithoutPebble, startPebble } from '../support/pebble.ts'
import { skipWithoutPostgres } from '../support/postgres-cluster.ts'
import { freePort } from '../support/serve-process.ts'
import { until } from '../support/until.ts'
import { startZone } from '../support/zone.ts'
import { HOST } from './certificate-scene.ts'

t.setTimeout(300_000)

const skip = skipWithoutPebble || skipWithoutPostgres

t.test('the authority finds the proof at a node that did not order', { skip }, async (t) => {
  const httpPort = await freePort()
  const zone = await startZone({ [HOST]: { A: ['127.0.0.22'] } })
  t.teardown(() => zone.close())
  const { directory, caFile } = await startPebble(t, { httpPort, dnsServer: zone.server })
  const { nodes } = await startNodeCluster(t, {
    count: 2,
    machineOf: (number) => ({ httpAddress: `127.0.0.${20 + number}`, httpPort }),
    settings: { tls: { acme: { directory, ca_file: caFile } } },
  })
  const count = (said: string): number[] =>
    nodes.map(({ server }) => server.log().filter(({ msg }) => msg === said).length)
  // Before the second node was there, the authority found nobody.
  await until('the first try is over', () => count('no certificate')[0] || count('certificate issued')[0])
  t.match(await nodes[0]?.api.post(`/admin/certificates/${HOST}/renew`, {}), { status: 202 })
  for (const { server, nodeId } of nodes) {
    // Until then one is shown that has ended.
    const isShown = async (): Promise<boolean> => {
      const text = await (await fetch(server.metricsUrl)).text()
      return Number(new RegExp(`certificate="DNS:${HOST}"} (.*)`).exec(text)?.[1]) * SECOND > Date.now()
    }
    t.ok(await until(`the certificate at ${nodeId}`, isShown, 120_000), nodeId)
  }
  const [first = 0, second] = count('certificate issued')
  t.ok(first > 0)
  t.equal(second, 0)
})
