/**
 * A day of traffic, several times what the budget of the database holds: the file stays below it, everything that was
 * accepted is sent once, also what was scheduled for the end of the day, and a search still answers.
 */
import { readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import { apiClient, type ApiClient } from '../support/api-client.ts'
import { integrityOf, stateCounts } from '../support/queue-rows.ts'
import { startSimulatedAppliance } from '../support/simulated-appliance.ts'
import { SENDING_DOMAIN, TWO_IPS } from '../support/two-ips.ts'
import {
  DESTINATIONS,
  PLAIN_PROVIDERS,
  sendBatch,
  startProviderZone,
  UNLIMITED,
  verifySender,
} from '../support/warming-scene.ts'
import { readWireLog } from '../support/wire-log.ts'

const MEGABYTE = 1_000_000
const PLAN =
  process.env['TEST_SCALE'] === 'full'
    ? { budget: 500 * MEGABYTE, step: 10 * MINUTE, singles: 300, batch: 1_000, htmlBytes: 10_240, isTight: false }
    : { budget: 5 * MEGABYTE, step: HOUR, singles: 30, batch: 220, htmlBytes: 8_192, isTight: true }
const STEPS = (24 * HOUR) / PLAN.step
/** One message in so many is scheduled for the last hour. */
const SCHEDULED_EVERY = 20
const AT_ONCE = 8

t.setTimeout(0)

t.test(`a day of traffic on ${PLAN.budget / MEGABYTE} MB`, async (t) => {
  const zone = await startProviderZone()
  const appliance = await startSimulatedAppliance({
    hasWire: false,
    dnsServer: zone.server,
    deliveryPort: 25,
    pools: TWO_IPS,
    files: PLAIN_PROVIDERS,
    settings: { api: UNLIMITED, retention: { budget: `${PLAN.budget}B` }, storage: { min_free_accept: '64MiB' } },
  })
  t.teardown(async () => {
    await appliance.remove()
    await zone.close()
  })
  const api = apiClient(appliance.baseUrl, await appliance.createKey())
  await verifySender(api, zone)
  const file = join(appliance.dataFolder, 'sternpost.db')
  const largest = { file: 0, log: 0 }
  const ids: string[] = []
  const endAt = appliance.now() + 24 * HOUR
  let written = 0
  for (let step = 0; step < STEPS; step += 1) {
    const html = (index: number): string => `<p>${step}-${index} ${'x'.repeat(PLAN.htmlBytes)}</p>`
    const recipients = Array.from({ length: PLAN.batch }, (_, index) => addressOf(step, `b${index}`))
    ids.push(...(await sendBatch(api, recipients)))
    ids.push(
      ...(await sendSingles(api, PLAN.singles, (index) => ({
        to: addressOf(step, `s${index}`),
        html: html(index),
        ...(index % SCHEDULED_EVERY === 0 ? { send_at: Math.floor((endAt - HOUR / 2) / 1_000) } : {}),
      }))),
    )
    written += PLAN.singles * PLAN.htmlBytes
    // What is under way has a lease, which would be over, without a mark, before its dot: it would be sent twice.
    await appliance.leap(0)
    await appliance.leap(PLAN.step)
    await appliance.retain()
    largest.file = Math.max(largest.file, statSync(file).size)
    largest.log = Math.max(largest.log, statSync(`${file}-wal`).size)
  }
  await appliance.leap(HOUR)
  await appliance.retain()

  const left = stateCounts(appliance.dataFolder)
  t.comment(
    `${ids.length} messages, ${megabytes(written)} of bodies alone; left: ${JSON.stringify(left)}; ` +
      `file at most ${megabytes(largest.file)}, log at most ${megabytes(largest.log)}`,
  )
  t.ok(largest.file <= PLAN.budget, `the file had at most ${megabytes(largest.file)} of ${megabytes(PLAN.budget)}`)
  t.ok(largest.file > 0.6 * PLAN.budget, 'and what the budget allows is kept')
  const sent = new Map<string, number>()
  for (const { message } of readWireLog(appliance.dataFolder)) sent.set(message, (sent.get(message) ?? 0) + 1)
  t.same(
    ids.filter((id) => sent.get(id) !== 1),
    [],
    'each was sent once',
  )
  t.equal(sent.size, ids.length)
  t.same(Object.keys(left), ['delivered'], 'nothing waits')
  t.equal(integrityOf(appliance.dataFolder), 'ok')
  const { status, body } = await api.get(`/email?limit=5&recipient=${encodeURIComponent(addressOf(STEPS - 1, 's1'))}`)
  t.match([status, body['data']], [200, [{ state: 'delivered' }]], 'the newest are found')
  const log = readFileSync(join(appliance.dataFolder, '..', 'sternpost.log'), 'utf8')
  t.match(log, /"early_contents":\d+/, 'content went early')
  t.equal(/"early_messages":\d+/.test(log), PLAN.isTight, 'and messages, where rows alone are more than the budget')
  t.notMatch(log, /above its budget/)
})

function addressOf(step: number, name: string): string {
  const { domain } = DESTINATIONS[step % DESTINATIONS.length] ?? DESTINATIONS[0]
  return `${name}-${step}@${domain}`
}

async function sendSingles(api: ApiClient, count: number, mailOf: (index: number) => object): Promise<string[]> {
  const ids: string[] = []
  let next = 0
  const work = async (): Promise<void> => {
    for (let index = next++; index < count; index = next++) {
      const { status, body } = await api.post('/email/send', {
        from: `shop@${SENDING_DOMAIN}`,
        subject: 'Order',
        ...mailOf(index),
      })
      if (status !== 200) throw new Error(`not accepted: ${status} ${JSON.stringify(body)}`)
      ids.push(String(body['message_id']))
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work))
  return ids
}

const megabytes = (bytes: number): string => `${(bytes / MEGABYTE).toFixed(1)} MB`
