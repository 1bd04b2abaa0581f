/**
 * Mail beyond the allowance of a new IP: it leaves from the warmed IP of the pool, waits, or is refused, as the pool
 * says. Seen at the receiver by its source address.
 */
import t, { type Test } from 'tap'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import { recount } from '../support/recount.ts'
import { SENDING_DOMAIN } from '../support/two-ips.ts'
import { DESTINATIONS, sendBatch, startWarmingScene, type WarmingScene } from '../support/warming-scene.ts'

/** Of stage 1: messages in a day, and at once. */
const CAP = 50
const BURST = 5
const NEW_IP = { address: '127.0.0.11', hostname: 'mta1.sternpost.test' }
const OTHER_NEW_IP = { address: '127.0.0.13', hostname: 'mta3.sternpost.test' }
const WARMED_IP = { address: '127.0.0.12', hostname: 'mta2.sternpost.test', warmed: true }
/** Whose last IPs are not started by every test. */
const THIRD_NEW_IP = { address: '127.0.0.14', hostname: 'mta4.sternpost.test' }

t.setTimeout(600_000)

t.test('overflow of a new IP', async (t) => {
  const scene = await startWarmingScene(t, {
    default: { ips: [NEW_IP, WARMED_IP] },
    waiting: { ips: [OTHER_NEW_IP], overflow: 'defer', max_defer: '72h' },
    strict: { ips: [THIRD_NEW_IP], overflow: 'reject' },
  })
  for (const { address } of [NEW_IP, OTHER_NEW_IP, THIRD_NEW_IP]) {
    await scene.api.post(`/ips/${address}/warmup`, { force: true })
  }
  await t.test('spill: the rest leaves at once from the warmed IP of the pool', (t) => spills(t, scene))
  await t.test('defer: it waits, and says for what', (t) => waits(t, scene))
  await t.test('reject: 409 with the figures', (t) => rejects(t, scene))
})

/** At all providers, so that no share holds anything back. */
function readers(name: string, count: number): string[] {
  return Array.from(
    { length: count },
    (_, index) => `${name}-${index}@${DESTINATIONS[index % DESTINATIONS.length]?.domain}`,
  )
}

async function spills(t: Test, { api, sink, pass }: WarmingScene): Promise<void> {
  await sendBatch(api, readers('spill', 60))
  await pass(1)
  const count = (source: string): number => sink.tries.filter((one) => one.source === source).length
  t.equal(count(NEW_IP.address), BURST, 'a burst of the new IP')
  t.equal(count(WARMED_IP.address), 60 - BURST, 'all others from the warmed IP')
  await pass(12 * HOUR)
  t.equal(sink.tries.length, 60, 'nothing was left')
}

async function waits(t: Test, { api, sink, pass, passDay }: WarmingScene): Promise<void> {
  await passDay(6 * HOUR)
  const ids = await sendBatch(api, readers('wait', CAP + 20), { ip_pool: 'waiting' })
  await pass(1)
  const arrivals = (): string[] => sink.tries.filter((one) => one.recipient.startsWith('wait')).map((one) => one.source)
  t.equal(arrivals().length, BURST)
  const reasons = async (): Promise<Map<string, number>> => {
    const found = new Map<string, number>()
    for (const id of ids) {
      const { body } = await api.get(`/email/${id}/explain`)
      const { state, waiting_for: reason } = body['data'] as Record<string, string>
      if (state !== 'delivered') found.set(`${state} ${reason}`, (found.get(`${state} ${reason}`) ?? 0) + 1)
    }
    return found
  }
  t.same([...(await reasons())], [['queued warmup_hour', CAP + 20 - BURST]], 'at the pace of the day')
  await pass(22 * HOUR, 20 * MINUTE)
  await pass(HOUR + 50 * MINUTE, 2 * MINUTE)
  t.equal(arrivals().length, CAP, 'the cap of the day')
  t.same([...(await reasons())], [['queued warmup_day', 20]])
  await passDay()
  await pass(20 * HOUR, 30 * MINUTE)
  t.equal(arrivals().length, CAP + 20, 'the next day brings the rest')
  t.same([...new Set(arrivals())], [OTHER_NEW_IP.address])
  const sent = recount(
    sink.tries
      .filter(({ source }) => source === OTHER_NEW_IP.address)
      .map((one) => ({ ...one, recipientDomain: '', message: one.recipient })),
  )
  t.same(
    sent.map((day) => day.sent),
    [CAP, 20],
  )
}

async function rejects(t: Test, { api, sink, passDay, pass, warmupOf }: WarmingScene): Promise<void> {
  await passDay(6 * HOUR)
  await sendBatch(api, readers('strict', CAP - 10), { ip_pool: 'strict' })
  await pass(1)
  const mail = { from: `news@${SENDING_DOMAIN}`, subject: 'News', text: 'All the news', ip_pool: 'strict' }
  const batch = (count: number): object => ({ ...mail, recipients: readers('more', count).map((to) => ({ to })) })
  const refused = await api.post('/email/batch', batch(11))
  t.equal(refused.status, 409)
  t.match(refused.body, { error: { code: 'ip_not_warmed' } })
  const details = figuresOf(refused.body)
  t.match(details, { cap: CAP, granted: BURST, backlog: CAP - 10 - BURST })
  const wait = Number(refused.headers.get('retry-after'))
  t.equal(details['retry_after'], wait)
  t.ok(wait > 23 * 3_600 && wait <= 24 * 3_600, `until the next day: ${wait} s`)
  t.equal((await api.post('/email/batch', batch(10))).status, 200, 'as much as is left is accepted')
  const one = await api.post('/email/send', { ...mail, to: 'last@company.test' })
  t.equal(one.status, 409, 'and not one more')
  t.match(figuresOf(one.body), { cap: CAP, granted: BURST, backlog: CAP - BURST })
  await passDay(20 * MINUTE)
  const arrived = sink.tries.filter(({ source }) => source === THIRD_NEW_IP.address).length
  t.equal(arrived, CAP, 'what was accepted left on its day')
  t.equal((await warmupOf(THIRD_NEW_IP.address)).stage, 2)
  t.equal((await api.post('/email/send', { ...mail, to: 'last@company.test' })).status, 200)
}

/** `cap=50 granted=5` in the details of an error. */
function figuresOf(body: Record<string, unknown>): Record<string, number> {
  const { details } = body['error'] as { details: string }
  // A name in small letters, and its number.
  const found = [...details.matchAll(/([a-z_]+)=(\d+)/g)]
  return Object.fromEntries(found.map(([, name = '', value]) => [name, Number(value)]))
}
