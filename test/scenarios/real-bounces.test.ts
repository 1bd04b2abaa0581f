/**
 * Bounces that Debian's Postfix, Exim and OpenSMTPD really make for our mail, the whole way: an app sends, the server
 * takes it and bounces it later, our inbound server reads the bounce, the message becomes a late bounce, the webhook
 * says so once, and a hard one suppresses the address.
 */
import t from 'tap'
import { startPostfix } from '../support/postfix.ts'
import { missingPrograms } from '../support/programs.ts'
import { freePort, startServe } from '../support/serve-process.ts'
import { applianceZone, prepareSender, SENDING_DOMAIN, TWO_IPS } from '../support/two-ips.ts'
import {
  missingMailServers,
  startExim,
  startOpenSmtpd,
  type BouncingServer,
  type BouncingServerOptions,
} from '../support/unpacked-servers.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'
import { startZone } from '../support/zone.ts'

interface Expected {
  address: string
  start(options: BouncingServerOptions): BouncingServer | Promise<BouncingServer>
  type: string
  code: string
}

// Exim says 5.0.0 in the Status field and 5.1.1 in its text; OpenSMTPD says 5.3.0: its own trouble.
const SERVERS: Record<string, Expected> = {
  postfix: { address: '127.0.0.41', start: startBouncingPostfix, type: 'hard', code: '5.1.1' },
  exim: { address: '127.0.0.42', start: startExim, type: 'hard', code: '5.1.1' },
  opensmtpd: { address: '127.0.0.43', start: startOpenSmtpd, type: 'soft', code: '5.3.0' },
}

const skip = missingPrograms({ postfix: ['postfix'] }) || missingMailServers()

t.setTimeout(600_000)

t.test('bounces of three real servers become late bounces', { skip }, async (t) => {
  const [port, inboundPort] = [await freePort(), await freePort()]
  const zone = await startZone({ ...applianceZone('127.0.0.1'), ...receivingZone() })
  t.teardown(() => zone.close())
  const receiver = await webhookReceiver()
  t.teardown(() => receiver.close())
  const server = await startServe({
    dnsServer: zone.server,
    deliveryPort: port,
    pools: TWO_IPS,
    settings: { listen: { inbound: [{ address: '127.0.0.1', port: inboundPort }] } },
  })
  t.teardown(() => server.remove())
  const api = await prepareSender(server, zone)
  await api.post('/webhooks', { url: receiver.url, secret: 'a secret of some length' })
  const bouncesTo = { address: '127.0.0.1', port: inboundPort }

  for (const [name, { address, start, type, code }] of Object.entries(SERVERS)) {
    await t.test(name, async (t) => {
      const domain = `${name}.test`
      const bouncing = await start({ address, port, domain, bouncesTo })
      t.teardown(() => bouncing.stop())
      const recipient = `nobody@${domain}`
      const mail = { to: recipient, from: `orders@${SENDING_DOMAIN}`, subject: 'Order', text: 'Thank you' }
      const id = await api.send(mail)
      const lookUp = async (): Promise<Record<string, unknown>> =>
        (await api.get(`/email/${id}`)).body['data'] as Record<string, unknown>
      const message = await until(
        'the bounce was read',
        async () => {
          const found = await lookUp()
          return found['state'] === 'bounced' && found
        },
        180_000,
      ).catch((error: Error) => t.fail(`${error.message}\n${bouncing.log()}`))
      t.match(message, { delivered_at: Number, bounce: { type, code, late: true } })

      const kinds = (): unknown[] =>
        receiver.requests
          .map(({ body }) => JSON.parse(body.toString()) as { event: string; data: { message_id: string } })
          .filter(({ data }) => data.message_id === id)
          .map(({ event }) => event)
      await until('both events arrived', () => kinds().length === 2)
      t.same(kinds().toSorted(), ['email.bounced', 'email.delivered'])
      const listed = (await api.get(`/suppressions?email=${encodeURIComponent(recipient)}`)).body['data']
      t.equal((listed as unknown[]).length, type === 'hard' ? 1 : 0, 'only a hard bounce suppresses')
    })
  }
})

function startBouncingPostfix(options: BouncingServerOptions): BouncingServer {
  const { log, stop } = startPostfix({ ...options, mailboxes: [] })
  return { log, stop: async () => stop() }
}

function receivingZone(): Record<string, { MX?: string[]; A?: string[] }> {
  const entries = Object.entries(SERVERS).flatMap(([name, { address }]) => [
    [`${name}.test`, { MX: [`10 mx.${name}.test`] }] as const,
    [`mx.${name}.test`, { A: [address] }] as const,
  ])
  return Object.fromEntries(entries)
}
