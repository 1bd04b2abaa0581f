/**
 * The machine's clock runs a year ahead for a while, as the program sees it, and is set right: no mail waits for next
 * year, whether it was accepted before or meanwhile (test/README.md "Clock").
 */
import { renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { missingPrograms } from '../support/programs.ts'
import { scriptedMx, type Reply } from '../support/scripted-mx.ts'
import { startServe } from '../support/serve-process.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

/** The system's linker writes the folder of this machine for $LIB. */
const CLOCK_LIBRARY = '/usr/$LIB/faketime/libfaketimeMT.so.1'
const DEADLINE = 60_000

t.setTimeout(300_000)

t.test('a year ahead and back', { skip: missingPrograms({ faketime: ['faketime'] }) }, async (t) => {
  let answer: Reply = '451 4.3.0 later'
  const mx = await scriptedMx({ script: { rcpt: () => answer } })
  t.teardown(() => mx.close())
  const zone = await startApplianceZone('127.0.0.1')
  t.teardown(() => zone.close())
  const clockFile = join(t.testdir(), 'clock')
  const setClock = (ahead: string): void => {
    writeFileSync(`${clockFile}.new`, ahead)
    renameSync(`${clockFile}.new`, clockFile)
  }
  setClock('+0')
  const server = await startServe({
    dnsServer: zone.server,
    deliveryPort: mx.port,
    pools: TWO_IPS,
    settings: { delivery: { retry: ['20s'] } },
    environment: {
      LD_PRELOAD: CLOCK_LIBRARY,
      FAKETIME_TIMESTAMP_FILE: clockFile,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
    },
  })
  t.teardown(() => server.remove())
  const api = await prepareSender(server, zone)
  const sent: Record<string, string> = {}
  const send = async (name: string, sendAt?: number): Promise<void> => {
    const mail = { from: `shop@${SENDING_DOMAIN}`, to: `${name}@dest.test`, subject: 'Order', text: 'On its way' }
    const { body } = await api.post('/email/send', { ...mail, ...(sendAt !== undefined && { send_at: sendAt }) })
    sent[name] = String(body['message_id'])
  }
  const viewOf = async (name: string) => (await api.get(`/email/${sent[name]}`)).body['data'] as Record<string, unknown>
  const isDeferred = async (name: string) => (await viewOf(name))['state'] === 'deferred'

  const nextWeek = Math.floor(Date.now() / 1_000) + 7 * 24 * 3_600
  await send('before')
  await send('scheduled', nextWeek)
  await until('the first is deferred', () => isDeferred('before'), DEADLINE)
  setClock('+365d')
  await until('the program sees it', () => server.log().some(({ jump_ms: jump }) => Number(jump) > 0), DEADLINE)
  await send('meanwhile')
  await until('the second is deferred', () => isDeferred('meanwhile'), DEADLINE)
  setClock('+0')
  t.equal(await until('the process ends by itself', () => server.exitCode(), DEADLINE), 1)
  answer = '250 2.1.5 ok'
  await server.start()
  t.match(
    server.log().findLast(({ msg }) => msg === 'messages that waited for a time far ahead are due'),
    { messages: 1 },
  )
  await until('both arrive', () => mx.messages.length >= 2, DEADLINE)
  for (const name of ['before', 'meanwhile']) {
    await until(`${name} is delivered`, async () => (await viewOf(name))['state'] === 'delivered', DEADLINE)
  }
  t.match(await viewOf('scheduled'), { state: 'scheduled' }, 'what was asked for next week stays there')
  t.equal(mx.messages.length, 2)
})
