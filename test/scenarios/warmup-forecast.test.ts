/**
 * The forecast of a campaign against what happens: the last mail arrives within 5 % of the time that was told.
 */
import t from 'tap'
import { DAY, MINUTE } from '../../src/base/clock.ts'
import { DESTINATIONS, sendBatch, startWarmingScene } from '../support/warming-scene.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const TOLERANCE = 0.05
/** Each from its own new IP. At `isp` alone its share holds it back. */
const CAMPAIGNS = [
  { ip: '127.0.0.11', pool: 'default', recipients: IS_FULL ? 1_350 : 275, isp: null },
  { ip: '127.0.0.12', pool: 'second', recipients: IS_FULL ? 500 : 110, isp: 'gmail' },
]
/** Days; the longest lifetime there is. */
const LONGEST = 7

t.setTimeout(IS_FULL ? 3_600_000 : 600_000)

t.test('a campaign finishes when the forecast says', async (t) => {
  const poolOf = (ip: string): object => ({
    ips: [{ address: ip, hostname: `mta${ip.slice(-1)}.sternpost.test` }],
    overflow: 'defer',
    max_defer: `${LONGEST}d`,
  })
  const { api, sink, server, pass } = await startWarmingScene(
    t,
    Object.fromEntries(CAMPAIGNS.map(({ ip, pool }) => [pool, poolOf(ip)])),
    { streams: { bulk: { lifetime: `${LONGEST}d` } } },
  )
  const beginning = server.clock.now()
  const told = []
  for (const { ip, pool, recipients, isp } of CAMPAIGNS) {
    await api.post(`/ips/${ip}/warmup`, { force: true })
    const query = isp === null ? '' : `&isp=${isp}`
    const { body } = await api.get(`/ips/${ip}/warmup/forecast?recipients=${recipients}${query}`)
    const { finish_at: finishAt, days } = body['data'] as { finish_at: number; days: { planned: number }[] }
    told.push({ ip, recipients, finishAt: finishAt * 1_000, days })
    // Without a provider, none has more of it than its share.
    const domains = DESTINATIONS.filter((destination) => isp === null || destination.isp === isp)
    await sendBatch(
      api,
      Array.from({ length: recipients }, (_, index) => `${pool}-${index}@${domains[index % domains.length]?.domain}`),
      { ip_pool: pool, stream: 'bulk' },
    )
  }
  const expected = CAMPAIGNS.reduce((sum, { recipients }) => sum + recipients, 0)
  await pass(1)
  const latest = beginning + LONGEST * DAY
  while (sink.tries.length < expected && server.clock.now() < latest) await pass(15 * MINUTE)

  for (const { ip, recipients, finishAt, days } of told) {
    const arrivals = sink.tries.filter(({ source }) => source === ip)
    t.equal(arrivals.length, recipients)
    const took = Math.max(...arrivals.map(({ at }) => at)) - beginning
    const forecast = finishAt - beginning
    const figures = [forecast, took].map((milliseconds) => `${(milliseconds / DAY).toFixed(3)} d`)
    t.comment(
      `${ip}: ${recipients} messages, forecast ${figures[0]}, took ${figures[1]}; ` +
        `planned ${days.map(({ planned }) => planned).join(', ')}`,
    )
    t.ok(Math.abs(took - forecast) <= TOLERANCE * forecast, `${ip}: forecast ${figures[0]}, took ${figures[1]}`)
  }
})
