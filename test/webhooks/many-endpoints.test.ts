/**
 * A full backlog for fifty endpoints, five of which are dead: two refuse connections, three never answer. The others
 * get theirs at the rate they can take, and the dead ones hold no more than one post each.
 */
import { createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import t from 'tap'
import { SECOND } from '../../src/base/clock.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'
import { startEngine } from './engine-harness.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const ENDPOINTS = 50
const HANGING = 3
const REFUSING = 2
const HEALTHY = ENDPOINTS - HANGING - REFUSING
/** Each is due for every endpoint. */
const EVENTS = IS_FULL ? 2_000 : 40
const TIMEOUT = 10 * SECOND
const PER_ENDPOINT = 4
const DEADLINE = IS_FULL ? 900_000 : 300_000

t.setTimeout(2 * DEADLINE)

async function closedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}

t.test('five dead endpoints of fifty hold up none of the others', async (t) => {
  const healthy = await webhookReceiver(200)
  const hanging = await webhookReceiver('hang')
  t.teardown(() => Promise.all([healthy.close(), hanging.close()]))
  const harness = await startEngine(t, { concurrency: { total: 100, per_endpoint: PER_ENDPOINT } })
  // The dead ones first: theirs are the oldest deliveries of each event.
  const port = await closedPort()
  for (let index = 0; index < REFUSING; index += 1) await harness.addEndpoint(`http://127.0.0.1:${port}/${index}`)
  for (let index = 0; index < HANGING; index += 1) await harness.addEndpoint(`${hanging.url}/${index}`)
  for (let index = 0; index < HEALTHY; index += 1) await harness.addEndpoint(`${healthy.url}/${index}`)

  const startedAt = performance.now()
  await harness.deliver(EVENTS)
  await until('the healthy ones have theirs', () => healthy.requests.length >= HEALTHY * EVENTS, DEADLINE)
  const took = performance.now() - startedAt
  const told = new Map<string, Set<unknown>>()
  for (const { path, headers } of healthy.requests) {
    told.set(path, (told.get(path) ?? new Set()).add(headers['x-service-event-id']))
  }
  t.equal(told.size, HEALTHY)
  t.ok(
    [...told.values()].every(({ size }) => size === EVENTS),
    'every event, to each of them',
  )
  t.equal(healthy.requests.length, HEALTHY * EVENTS, 'and once')
  // Until they are known to be silent each has all its slots; then one, whose time must run out.
  const most = HANGING * (PER_ENDPOINT + Math.ceil(took / TIMEOUT))
  t.ok(hanging.requests.length <= most, `${hanging.requests.length} posts to silent endpoints, at most ${most}`)
  const rate = Math.round((HEALTHY * EVENTS * SECOND) / took)
  t.comment(`${ENDPOINTS * EVENTS} due: ${HEALTHY * EVENTS} told in ${Math.round(took)} ms, ${rate} a second`)
  await hanging.close()
})
