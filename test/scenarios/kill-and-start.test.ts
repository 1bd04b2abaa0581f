/**
 * The process is killed while mail drains, and started again: every accepted message was delivered, none is lost.
 * Delivery is at least once (RFC 1047): what was between its final dot and the commit may arrive twice, and is counted.
 */
import t from 'tap'
import type { ApiClient } from '../support/api-client.ts'
import { startCountingSink } from '../support/counting-sink.ts'
import type { CountingSink } from '../support/counting-sink.ts'
import { startServe } from '../support/serve-process.ts'
import type { ServeProcess } from '../support/serve-process.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

const MESSAGES = 2_000
const CLIENTS = 20
/** With fewer at the kill the run proves nothing. */
const LEAST_IN_FLIGHT = 10
const ANSWER_DELAY = 40

t.setTimeout(180_000)

t.test('kill -9 while 2,000 messages drain loses none', async (t) => {
  const { sink, server, api } = await startScene(t)

  const accepted = await sendMany(api, MESSAGES)
  t.equal(accepted.size, MESSAGES)

  const inFlight = await until('enough in flight', () => sink.inFlight() >= LEAST_IN_FLIGHT && sink.inFlight())
  await server.kill()
  const arrivedBefore = sink.arrivals.size
  t.ok(inFlight >= LEAST_IN_FLIGHT, `${inFlight} were in flight at the kill`)
  t.ok(arrivedBefore < MESSAGES, `${arrivedBefore} of ${MESSAGES} had arrived at the kill`)

  await server.start()
  await until('every message has arrived', () => sink.arrivals.size === MESSAGES, 90_000)
  const lost = [...accepted.keys()].filter((recipient) => !sink.arrivals.has(recipient))
  const twice = [...sink.arrivals.values()].filter((count) => count > 1).length
  t.same(lost, [])
  t.comment(`in flight at the kill: ${inFlight}; arrived twice: ${twice}; lost: ${lost.length}; of ${MESSAGES}`)
  t.same([...sink.sources].sort(), ['127.0.0.11', '127.0.0.12'], 'both pool IPs sent, and no other address')

  const states = new Map<string, number>()
  await until('every message is recorded as delivered', async () => {
    states.clear()
    for (const id of accepted.values()) {
      const { body } = await api.get(`/email/${id}`)
      const { state } = body['data'] as { state: string }
      states.set(state, (states.get(state) ?? 0) + 1)
    }
    return states.get('delivered') === MESSAGES
  }, 30_000)
  t.same([...states], [['delivered', MESSAGES]])
})

t.test('SIGTERM while mail drains ends with 0, and nothing is lost or sent twice', async (t) => {
  const messages = 300
  const { sink, server, api } = await startScene(t)
  await sendMany(api, messages)
  await until('some are in flight', () => sink.inFlight() > 0)
  t.equal(await server.stop(), 0)
  t.equal(sink.inFlight(), 0, 'what was under way was finished')
  await server.start()
  await until('every message has arrived', () => sink.arrivals.size === messages, 60_000)
  t.same([...sink.arrivals.values()].filter((count) => count !== 1), [])
})

interface Scene {
  sink: CountingSink
  server: ServeProcess
  api: ApiClient
}

/** The server with a verified sender, and a sink that takes its time. */
async function startScene(t: { teardown(clean: () => unknown): void }): Promise<Scene> {
  const sink = await startCountingSink({ answerDelayMilliseconds: ANSWER_DELAY })
  const zone = await startApplianceZone('127.0.0.1')
  const server = await startServe({
    dnsServer: zone.server, deliveryPort: sink.port, pools: TWO_IPS, settings: { api: { requests: 0 } },
  })
  t.teardown(async () => {
    await server.remove()
    await sink.close()
    await zone.close()
  })
  const api = await prepareSender(server, zone)
  return { sink, server, api }
}

/** Message ids by recipient. */
async function sendMany(api: ApiClient, messages: number): Promise<Map<string, string>> {
  const accepted = new Map<string, string>()
  let next = 0
  const client = async (): Promise<void> => {
    while (next < messages) {
      const to = `reader-${next++}@dest.test`
      accepted.set(to, await api.send({ to, from: `shop@${SENDING_DOMAIN}`, subject: 'Order', text: 'On its way' }))
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, client))
  return accepted
}
