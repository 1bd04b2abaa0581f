/**
 * An app that got no answer asks again with the same Idempotency-Key: one message, also when the server was killed
 * between request and answer, and when twenty clients ask at once.
 */
import t from 'tap'
import { startKeepingSink } from '../support/keeping-sink.ts'
import { startServe } from '../support/serve-process.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import type { ApiClient } from '../support/api-client.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const KILLS = IS_FULL ? 20 : 3
const CLIENTS = 20
/** Requests in flight at a kill. */
const KEYS = 10

t.setTimeout(600_000)

t.test('the same key makes one message, whatever happened to the answer', async (t) => {
  const zone = await startApplianceZone('127.0.0.1')
  t.teardown(() => zone.close())
  const sink = await startKeepingSink()
  t.teardown(() => sink.close())
  const server = await startServe({ dnsServer: zone.server, deliveryPort: sink.port, pools: TWO_IPS })
  t.teardown(() => server.remove())
  const api = await prepareSender(server, zone)
  // The admin socket made this key: it is the one that asks.
  const key = await server.createKey('send')

  const ask = async (idempotencyKey: string): Promise<Asked> => {
    const answer = await fetch(`${server.baseUrl}/v1/email/send`, {
      method: 'POST',
      headers: {
        Authorization: `Bearer ${key}`,
        'Content-Type': 'application/json',
        'Idempotency-Key': idempotencyKey,
      },
      body: JSON.stringify({
        to: `${idempotencyKey}@dest.test`,
        from: `orders@${SENDING_DOMAIN}`,
        subject: 'Order',
        text: 'Thank you',
      }),
    })
    return { status: answer.status, body: (await answer.json()) as Asked['body'] }
  }

  await t.test('twenty clients at once', async (t) => {
    const answers = await Promise.all(Array.from({ length: CLIENTS }, () => ask('together')))
    const ids = new Set(answers.filter(({ status }) => status === 200).map(({ body }) => body.message_id))
    t.equal(ids.size, 1, 'all that were accepted name the same message')
    t.ok(
      answers.every(({ status }) => status === 200 || status === 409),
      'the others are told that it is in flight',
    )
    t.equal((await ask('together')).body.message_id, [...ids][0])
    t.equal(await messagesTo(api, 'together'), 1)
  })

  await t.test('a kill between request and answer', async (t) => {
    let answered = 0
    for (let cycle = 0; cycle < KILLS; cycle += 1) {
      const keys = Array.from({ length: KEYS }, (_, index) => `kill-${cycle}-${index}`)
      const first = keys.map((name) =>
        ask(name).then(
          () => (answered += 1),
          () => {},
        ),
      )
      // From nothing read yet to everything answered: each cycle kills a little later.
      await new Promise((resolve) => setTimeout(resolve, cycle * 3))
      await server.kill()
      await Promise.all(first)
      await server.start()
      for (const name of keys) {
        t.equal((await ask(name)).status, 200, `${name} is accepted in the end`)
        t.equal(await messagesTo(api, name), 1, `${name} is one message`)
      }
    }
    t.comment(`${KILLS * KEYS} requests around ${KILLS} kills, ${answered} answered before; each is one message`)
  })
})

interface Asked {
  status: number
  body: { message_id?: string }
}

async function messagesTo(api: ApiClient, localPart: string): Promise<number> {
  const { body } = await api.get(`/email?recipient=${localPart}@dest.test`)
  return (body['data'] as unknown[]).length
}
