/**
 * Large mail to many hosts that read none of it: what waits for them takes a bounded part of memory, small mail goes on
 * meanwhile, and all of it arrives once they read.
 */
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import t, { type Test } from 'tap'
import { residentBytes } from '../../scripts/bench/process-figures.ts'
import { freePort, startServe } from '../support/serve-process.ts'
import { applianceZone, prepareSender, SENDING_DOMAIN, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'
import { startZone, type Zone } from '../support/zone.ts'

const MEBIBYTE = 2 ** 20
const IS_FULL = process.env['TEST_SCALE'] === 'full'
const HOSTS = Array.from({ length: IS_FULL ? 15 : 8 }, (_, index) => `slow${index}.test`)
const MAILS = 2 * HOSTS.length
/**
 * Of 96 MiB of messages, with what accepting, reading and rendering all of them leaves behind: at the full size 295 to
 * 326 MiB. Without the bound on messages under way it is 507, and small mail waits.
 */
const MOST_GROWTH = 400 * MEBIBYTE
const ATTACHMENTS = [{ name: 'a.bin', content: 'QUFB'.repeat(Math.floor((10 * MEBIBYTE) / 3)) }]
const PLACE = '127.0.2.1'

t.setTimeout(300_000)

t.test('mail that its hosts do not read takes a bounded part of memory', async (t) => {
  const host = await startSlowHost(t)
  const zone = await startZone({ ...applianceZone(PLACE), ...zoneOf(HOSTS) })
  t.teardown(() => zone.close())
  const httpPort = await freePort()
  const server = await startServe({ httpPort, dnsServer: zone.server, deliveryPort: host.port, pools: TWO_IPS })
  t.teardown(() => server.remove())
  const api = await prepareSender(server, zone)
  const mail = { from: `orders@${SENDING_DOMAIN}`, subject: 'Hello', text: 'Hi' }
  const before = residentBytes(server.processId)
  let most = before
  const watching = setInterval(() => (most = Math.max(most, residentBytes(server.processId))), 20)
  t.teardown(() => clearInterval(watching))
  for (const domain of [...HOSTS, ...HOSTS]) {
    await api.send({ ...mail, to: `large@${domain}`, attachments: ATTACHMENTS })
  }
  for (const domain of HOSTS) await api.send({ ...mail, to: `small@${domain}` })
  await until('small mail went to every host', () => host.taken('small') === HOSTS.length, 60_000)
  t.ok(host.begun() < MAILS, 'not all of the large mail is under way')
  t.comment(`${host.begun()} large mails under way, ${Math.round((most - before) / MEBIBYTE)} MiB more memory`)
  t.ok(most - before < MOST_GROWTH)
  host.read()
  await until('all of it arrives', () => host.taken('large') === MAILS, 120_000)
})

function zoneOf(domains: readonly string[]): Zone {
  return Object.fromEntries(
    domains.flatMap((domain) => [
      [domain, { MX: [`10 mx.${domain}`] }],
      [`mx.${domain}`, { A: [PLACE] }],
    ]),
  )
}

/** Takes mail to `small@`; to `large@` it asks for the body, and reads none of it for now. */
async function startSlowHost(t: Test) {
  const sockets = new Set<Socket>()
  const taken: string[] = []
  let begun = 0
  let isReading = false
  const server = createServer((socket) => {
    sockets.add(socket)
    let text = ''
    let recipient = ''
    let isBody = false
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    socket.write('220 slow\r\n')
    const onLine = (line: string): string => {
      recipient = /^RCPT TO:<(\w+)@/i.exec(line)?.[1] ?? recipient
      isBody = /^DATA/i.test(line)
      if (!isBody) return '250 2.0.0 ok\r\n'
      if (recipient === 'large') begun += 1
      if (recipient === 'large' && !isReading) socket.pause()
      return '354 go on\r\n'
    }
    socket.on('data', (bytes) => {
      text += bytes.toString('latin1')
      if (isBody) {
        isBody = !text.endsWith('\r\n.\r\n')
        text = isBody ? text.slice(-5) : ''
        if (isBody) return
        taken.push(recipient)
        return void socket.write('250 2.0.0 taken\r\n')
      }
      for (let end = text.indexOf('\r\n'); end >= 0; end = text.indexOf('\r\n')) {
        const line = text.slice(0, end)
        text = text.slice(end + 2)
        socket.write(onLine(line))
      }
    })
  }).listen(0, PLACE)
  await once(server, 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    server.close()
  })
  return {
    port: (server.address() as AddressInfo).port,
    begun: () => begun,
    taken: (name: string) => taken.filter((recipient) => recipient === name).length,
    read(): void {
      isReading = true
      for (const socket of sockets) socket.resume()
    },
  }
}
