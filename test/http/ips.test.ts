/**
 * The routes of dedicated IPs (http/README.md "IPs"): states and calls, paging, statistics, forecast. Every answer is
 * held against its schema by the client. The pools are those of sender-parts.ts: 127.0.0.14 is cold, 127.0.0.15
 * disabled.
 */
import t, { type Test } from 'tap'
import { DAY, HOUR } from '../../src/base/clock.ts'
import { acceptOne, attempt, bounced, claim, deferredUntil, delivered, outcomeRecord } from '../store/store-samples.ts'
import { ask, get, post, shareStore, startApi, type ApiServer, type Got } from './api-server.ts'

const COLD = '127.0.0.14'
const WARMED = '127.0.0.11'
const DISABLED = '127.0.0.15'
const SECOND = 1_000

shareStore(t)

interface Warmup {
  status: string
  stage: number
  daily_limit: number | null
  target_daily_volume: number
}

const warmupOf = ({ json }: Got): Warmup => json.data?.['warmup'] as Warmup
const warmup = (port: number, action = '', body: object = {}, ip = COLD): Promise<Got> =>
  post(port, `/v1/ips/${ip}/warmup${action === '' ? '' : `/${action}`}`, body)

/** With pools of its own: its IPs are as the files say. */
async function freshApi(t: Test): Promise<ApiServer> {
  return startApi(t, { ownStore: true })
}

t.test('lists every IP in the order of the pools, in pages, to keys with the scope stats', async (t) => {
  const { port } = await startApi(t)
  const all = await get(port, '/v1/ips', 'stats')
  const entries: Record<string, unknown>[] = JSON.parse(all.text).data
  t.same(
    entries.map(({ ip }) => ip),
    [WARMED, '127.0.0.12', '127.0.0.13', COLD, DISABLED],
  )
  t.match(all.json, { has_more: false, next_cursor: null })
  t.match(entries[0], { pool: 'default', status: 'warmed', enabled: true, bindable: true, weight: 100, warmup: null })
  t.match(entries[4], { pool: 'off', status: 'disabled', enabled: false })
  t.match(entries[3], { status: 'cold', warmup: null, ptr: { status: 'unknown', value: null, checked_at: null } })
  const first = await get(port, '/v1/ips?limit=3')
  t.match(first.json, { has_more: true, next_cursor: '127.0.0.13' })
  const unknown = await get(port, '/v1/ips?after=127.0.0.99')
  t.match(unknown, { status: 422, json: { error: { details: 'after: is not a cursor of this list' } } })
  const second = await get(port, '/v1/ips?limit=3&after=127.0.0.13')
  t.same(
    JSON.parse(second.text).data.map(({ ip }: { ip: string }) => ip),
    [COLD, DISABLED],
  )
  t.match(second.json, { has_more: false, next_cursor: null })
  for (const path of ['/v1/ips?limit=0', '/v1/ips?limit=101']) t.equal((await get(port, path)).status, 422, path)
  t.match((await get(port, `/v1/ips/${COLD}`, 'stats')).json.data, { ip: COLD, pool: 'cold', status: 'cold' })
  t.match((await get(port, `/v1/ips/${COLD}/warmup`, 'stats')).json.data, { ip: COLD, status: 'cold', warmup: null })
})

t.test('reading needs the scope stats, a change the scope ips', async (t) => {
  const { port } = await freshApi(t)
  for (const path of ['/v1/ips', `/v1/ips/${COLD}`, `/v1/ips/${COLD}/stats`, `/v1/ips/${COLD}/warmup`]) {
    t.equal((await get(port, path, 'send')).status, 403, path)
    t.equal((await get(port, path, null)).status, 401, path)
  }
  for (const action of ['', '/pause', '/resume', '/complete']) {
    const path = `/v1/ips/${COLD}/warmup${action}`
    t.equal((await post(port, path, {}, 'stats')).status, 403, path)
    t.equal((await post(port, path, {}, 'ips')).status, 200, path)
  }
})

t.test('an unknown IP is 404, a string that is no IP 422', async (t) => {
  const { port } = await startApi(t)
  const reads = ['', '/warmup', '/stats', '/warmup/forecast?recipients=1']
  const calls = ['/warmup', '/warmup/pause', '/warmup/resume', '/warmup/complete']
  for (const [ip, status, code] of [
    ['192.0.2.77', 404, 'not_found'],
    ['mta1', 422, 'invalid_request'],
  ] as const) {
    for (const path of reads) {
      t.match(await get(port, `/v1/ips/${ip}${path}`), { status, json: { error: { code } } }, `${ip}${path}`)
    }
    for (const path of calls) {
      t.match(await post(port, `/v1/ips/${ip}${path}`, {}), { status, json: { error: { code } } }, `${ip}${path}`)
    }
  }
  const mapped = await get(port, `/v1/ips/${encodeURIComponent('::ffff:192.0.2.77')}`)
  t.ok([404, 422].includes(mapped.status))
  t.equal((await ask(port, { method: 'DELETE', path: `/v1/ips/${COLD}` })).status, 405)
})

t.test('start, pause, resume and complete, each of them twice', async (t) => {
  const { port, log } = await freshApi(t)
  for (const action of ['pause', 'resume', 'complete']) {
    t.match(await warmup(port, action), { status: 409, json: { error: { code: 'conflict' } } }, `${action} while cold`)
  }
  const started = await warmup(port)
  t.equal(started.status, 200)
  const noon = Date.UTC(2026, 10, 21, 12) / SECOND
  t.match(started.json.data, {
    ip: COLD,
    status: 'warming',
    warmup: {
      status: 'warming',
      curve: 'standard',
      stage: 1,
      stages: 30,
      day: 1,
      started_at: noon,
      daily_limit: 50,
      hourly_limit: 7,
      sent_today: 0,
      remaining_today: 50,
      resets_at: noon + 12 * 3_600,
      percent: 0,
      target_daily_volume: 100_000,
      hold_reason: null,
      paused_until: null,
      providers: {},
    },
  })
  t.equal((await warmup(port, '', { curve: 'fast' })).text, started.text, 'a second start changes nothing')
  const paused = await warmup(port, 'pause', { reason: 'complaints' })
  t.match([paused.status, paused.json.data], [200, { status: 'paused', warmup: { status: 'paused' } }])
  t.equal((await warmup(port, 'pause', { reason: 'again' })).text, paused.text)
  const shown = await get(port, `/v1/ips/${COLD}`)
  t.match(shown.json.data, { status: 'paused', reason: 'complaints', changed_by: /^key_/ })
  t.match((await warmup(port)).json.data, { status: 'paused' }, 'a start is no resume')
  const resumed = await warmup(port, 'resume')
  t.match(resumed.json.data, { status: 'warming', warmup: { stage: 1 } })
  t.equal((await warmup(port, 'resume')).text, resumed.text)
  const completed = await warmup(port, 'complete')
  t.match(completed.json.data, { status: 'warmed', warmup: { daily_limit: null, percent: 100 } })
  t.equal((await warmup(port, 'complete')).text, completed.text)
  t.match(await warmup(port), { status: 409, json: { error: { code: 'conflict' } } })
  t.match((await warmup(port, '', { restart: true, stage: 5 })).json.data, { status: 'warming', warmup: { stage: 5 } })
  for (const what of ['warmup started', 'warmup paused', 'warmup resumed', 'warmup completed']) {
    t.match(
      log.find(({ msg }) => msg === what),
      { ip: COLD, api_key: 'admin …9f3a' },
      what,
    )
  }
})

t.test('start takes curve, stage and target, and refuses what cannot be', async (t) => {
  const { port } = await freshApi(t)
  const wrong = [
    { curve: 'steep' },
    { stage: 0 },
    { stage: 31 },
    { stage: 1.5 },
    { curve: 'fast', stage: 21 },
    { target_daily_volume: 0 },
    { restart: 'yes' },
    { force: 1 },
    { curve: 3 },
  ]
  for (const fields of wrong) {
    const refused = await warmup(port, '', fields)
    t.match(refused, { status: 422, json: { error: { code: 'invalid_request' } } }, JSON.stringify(fields))
  }
  t.match((await get(port, `/v1/ips/${COLD}`)).json.data, { status: 'cold' }, 'nothing was started')
  const long = 'x'.repeat(201)
  t.equal((await warmup(port, 'pause', { reason: long })).status, 422)
  const started = await warmup(port, '', { curve: 'conservative', stage: 3, target_daily_volume: 500, force: true })
  t.match(started.json.data, {
    status: 'warming',
    warmup: { curve: 'conservative', stage: 3, stages: 45, daily_limit: 60, target_daily_volume: 500 },
  })
  t.match(await warmup(port, 'pause', { reason: null, surprise: 1 }), {
    status: 200,
    headers: { 'x-service-warnings': 'surprise' },
  })
})

t.test('a start is refused while the address cannot be bound, and forced', async (t) => {
  const { port } = await startApi(t, { ownStore: true, canBind: async (address) => address !== COLD })
  t.match((await get(port, `/v1/ips/${COLD}`)).json.data, { status: 'disabled', bindable: false, reason: 'unplumbed' })
  const refused = await warmup(port)
  t.match(refused, { status: 409, json: { error: { code: 'conflict', details: /cannot be bound .*force: true/ } } })
  t.equal((await warmup(port, '', { force: true })).status, 200)
})

t.test('statistics of an IP without traffic are zeros, and no day is left out', async (t) => {
  const { port, clock } = await startApi(t)
  const now = clock.now() / SECOND
  const { status, json } = await get(port, `/v1/ips/${COLD}/stats`, 'stats')
  t.equal(status, 200)
  const stats = json.data ?? {}
  t.match(stats, { ip: COLD, from: now - 7 * 86_400, to: now, interval: 'day', by_provider: [], waiting: [] })
  const zero = (numbers: object): boolean => Object.values(numbers).every((number) => number === 0)
  t.ok(zero(stats['totals'] as object) && zero(stats['rates'] as object))
  const series = stats['series'] as { t: number }[]
  t.equal(series.length, 8, 'the days that a week at noon touches')
  t.ok(series.every((point, index) => index === 0 || point.t - (series[index - 1]?.t ?? 0) === 86_400))
  const hours = await get(port, `/v1/ips/${COLD}/stats?window=24h`)
  t.match(hours.json.data, { interval: 'hour', from: now - 86_400 })
  t.match((await get(port, `/v1/ips/${COLD}/stats?window=30d`)).json.data, { interval: 'day', from: now - 30 * 86_400 })
})

t.test('window, from, to and interval', async (t) => {
  const { port, clock } = await startApi(t)
  const now = clock.now() / SECOND
  const asked = (query: string): Promise<Got> => get(port, `/v1/ips/${COLD}/stats?${query}`)
  const day = await asked(`from=${now - 7_200}&to=${now - 3_600}`)
  t.match(day.json.data, { from: now - 7_200, to: now - 3_600, interval: 'hour', series: [{}] })
  t.match((await asked(`from=${now - 3_600}`)).json.data, { to: now })
  t.match((await asked(`to=${now - 86_400}`)).json.data, { from: now - 8 * 86_400, interval: 'day' })
  t.match((await asked(`from=${now - 10 * 86_400}&interval=hour`)).json.data, { interval: 'hour' })
  const wrong = [
    'window=1d',
    `window=7d&from=${now - 60}`,
    `window=7d&to=${now}`,
    `from=${now}`,
    `from=${now}&to=${now - 1}`,
    'from=yesterday',
    'interval=minute',
    `from=${now - 20 * 86_400}&interval=hour`,
    `from=${now - 500 * 86_400}`,
  ]
  for (const query of wrong) {
    t.match(await asked(query), { status: 422, json: { error: { code: 'invalid_request' } } }, query)
  }
})

t.test('statistics count what was tried from the IP', async (t) => {
  const { port, store, clock } = await freshApi(t)
  const now = clock.now()
  const { epoch } = await store.beginEpoch(now, now)
  for (let count = 0; count < 4; count++) await acceptOne(store, { now })
  const messages = await claim(store, epoch, now)
  const outcomes = [delivered, delivered, bounced, deferredUntil(now + HOUR)]
  const records = messages.map((message, index) =>
    outcomeRecord(message, outcomes[index] ?? delivered, attempt({ at: now - HOUR, ip: COLD })),
  )
  await store.recordOutcomes({ epoch, now, outcomes: records })
  const { json } = await get(port, `/v1/ips/${COLD}/stats?window=24h`, 'stats')
  t.match(json.data, {
    totals: { messages: 4, attempts: 4, delivered: 2, deferred: 1, bounced: 1, bounced_hard: 1, bounced_soft: 0 },
    rates: { delivery: 0.6667, bounce: 0.3333, complaint: 0, deferral: 0.25 },
    by_provider: [{ isp: 'gmail', delivered: 2, deferred: 1, bounced: 1, complained: 0, p95_delivery_ms: Number }],
  })
  const series = json.data?.['series'] as { t: number; delivered: number }[]
  t.match(
    series.find(({ delivered: count }) => count > 0),
    { t: (now - HOUR) / SECOND, delivered: 2 },
  )
  const today = await get(port, `/v1/admin/ips/${COLD}/days?past=2&ahead=0`)
  const days = [
    { date: '2026-11-20', sent: 0 },
    { date: '2026-11-21', planned: null, sent: 4 },
  ]
  t.match(JSON.parse(today.text).data, days)
})

t.test('the forecast of http/README.md "Forecast"', async (t) => {
  const { port, clock } = await freshApi(t)
  const midnight = (Math.floor(clock.now() / DAY) * DAY + DAY) / SECOND
  const path = `/v1/ips/${COLD}/warmup/forecast`
  const { status, json } = await get(port, `${path}?recipients=1000&start_at=${midnight}`, 'stats')
  t.equal(status, 200)
  t.match(json.data, {
    ip: COLD,
    recipients: 1_000,
    backlog: 0,
    start_at: midnight,
    finish_at: midnight + 397_440,
    fits_max_defer: false,
    fits_lifetime: false,
    days: [
      { date: '2026-11-22', stage: 1, daily_limit: 50, planned: 50 },
      { date: '2026-11-23', stage: 2, daily_limit: 100, planned: 100 },
      { date: '2026-11-24', stage: 3, daily_limit: 200, planned: 200 },
      { date: '2026-11-25', stage: 4, daily_limit: 350, planned: 350 },
      { date: '2026-11-26', stage: 5, daily_limit: 500, planned: 300 },
    ],
  })
  const days: unknown = json.data?.['days']
  t.equal(Array.isArray(days) ? days.length : 0, 5)
  const one = await get(port, `${path}?recipients=1000&start_at=${midnight}&isp=gmail`)
  t.ok(Number(one.json.data?.['finish_at']) > midnight + 397_440, 'the share of one provider is a ceiling')
  const free = await get(port, `/v1/ips/${WARMED}/warmup/forecast?recipients=1000`)
  t.match(free.json.data, { fits_max_defer: true, fits_lifetime: true, days: [{ stage: null, planned: 1_000 }] })
  for (const query of ['', 'recipients=0', 'recipients=10000001', 'recipients=x', 'recipients=-1', 'recipients=1.5']) {
    t.equal((await get(port, `${path}?${query}`)).status, 422, query)
  }
  t.equal((await get(port, `${path}?recipients=1&start_at=soon`)).status, 422)
})

t.test('a suspended IP is not started without restart', async (t) => {
  const { port } = await freshApi(t)
  const suspended = await post(port, `/v1/admin/ips/${COLD}/suspend`, { reason: 'listed' })
  t.match(suspended.json.data, { status: 'suspended', reason: 'listed', until: null })
  t.match(await warmup(port), { status: 409, json: { error: { code: 'conflict' } } })
  t.match(warmupOf(await warmup(port, '', { restart: true })), { status: 'warming', stage: 1 })
})
