/**
 * On a live server: simulated recipients work with a live key, and all mail of a test key is captured; nothing of it
 * leaves the host, and the events are those of the contract. http/README.md "Simulated recipients".
 */
import t from 'tap'
import { apiClient } from '../support/api-client.ts'
import { startKeepingSink } from '../support/keeping-sink.ts'
import { freePort, startServe } from '../support/serve-process.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'

const EVENTS: Record<string, string[]> = {
  delivered: ['email.delivered'],
  hard: ['email.bounced'],
  late: ['email.delivered', 'email.bounced'],
  complained: ['email.delivered', 'email.complained'],
  opened: ['email.delivered', 'email.opened'],
  clicked: ['email.delivered', 'email.opened', 'email.clicked'],
}

t.setTimeout(600_000)

t.test('simulated recipients and test keys on a live server', async (t) => {
  const zone = await startApplianceZone('127.0.0.1')
  t.teardown(() => zone.close())
  const sink = await startKeepingSink()
  t.teardown(() => sink.close())
  const receiver = await webhookReceiver()
  t.teardown(() => receiver.close())
  const [httpPort, inboundPort] = [await freePort(), await freePort()]
  const server = await startServe({
    dnsServer: zone.server,
    deliveryPort: sink.port,
    pools: TWO_IPS,
    httpPort,
    settings: {
      listen: {
        http: [{ address: '127.0.0.1', port: httpPort, tls: false, serve: ['api', 'tracking'] }],
        inbound: [{ address: '127.0.0.1', port: inboundPort }],
      },
    },
  })
  t.teardown(() => server.remove())
  const api = await prepareSender(server, zone)
  await api.post('/webhooks', { url: receiver.url, secret: 'a secret of some length' })
  const made = await api.post('/keys', { name: 'test', mode: 'test', scopes: ['send', 'webhooks'] })
  const testApi = apiClient(server.baseUrl, String((made.body['data'] as { key: string }).key))

  await testApi.post('/webhooks', { url: receiver.url, secret: 'a secret of some length' })

  const html = '<p>Hello, <a href="https://example.com/orders/1042">your order</a></p>'
  const wanted: Record<string, string[]> = {}
  for (const [name, events] of Object.entries(EVENTS)) {
    const to = `${name}@simulator.sternpost.test`
    wanted[await api.send({ to, from: `orders@${SENDING_DOMAIN}`, subject: 'Order', html })] = events
    wanted[await testApi.send({ to, from: 'orders@sandbox.test', subject: 'Order', html })] = events
  }
  const captured = await testApi.send({ to: 'ada@dest.test', from: 'orders@sandbox.test', subject: 'x', text: 'x' })
  wanted[captured] = ['email.delivered']

  const total = Object.values(wanted).flat().length
  await until('every event arrived', () => receiver.requests.length >= total, 240_000)
  const told = receiver.requests.map(
    ({ body }) => JSON.parse(body.toString()) as { event: string; data: { message_id: string } },
  )
  for (const [id, events] of Object.entries(wanted)) {
    const found = told.filter(({ data }) => data.message_id === id).map(({ event }) => event)
    t.same(found.toSorted(), events.toSorted(), events.join(', '))
  }
  t.equal(sink.mails.length, 0, 'nothing left the host')
})
