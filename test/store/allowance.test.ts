/**
 * The allowance of warming IPs on a real SQLite file: caps that hold whatever is asked, when, and in what order.
 */
import type { Database } from 'better-sqlite3'
import t, { type Test } from 'tap'
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import { utcDay } from '../../src/base/utc-day.ts'
import type { Grant } from '../../src/store/records/queue-records.ts'
import { createAllowanceRefund, createReserveAllowance } from '../../src/store/verbs/ips/allowance.ts'
import { openDatabase } from '../../src/store/sqlite/engine/database.ts'
import type { Reservation } from '../../src/store/records/warmup-records.ts'
import { randomSource } from '../support/random-source.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { allowanceRule, ask, IP, MIDNIGHT } from './warmup-samples.ts'

const isFull = process.env['TEST_SCALE'] === 'full'

function openAllowance(t: Test) {
  const opened = openDatabase(locationIn(t.testdir({})))
  t.teardown(() => opened.close())
  const database = opened.writer
  // One transaction for all: thousands of commits would measure the disk.
  database.exec('begin immediate')
  const reserveAll = database.transaction(createReserveAllowance(database))
  const reserve = (...request: Parameters<typeof ask>): Reservation => only(reserveAll(ask(...request)))
  return { database, reserve, reserveAll, refund: createAllowanceRefund(database) }
}

function only<Value>([value]: readonly Value[]): Value {
  if (value === undefined) throw new Error('no answer')
  return value
}

const dayRow = (database: Database, isp: string): unknown =>
  database.prepare('select cap, granted, refunded from warmup_days where ip = ? and isp = ?').get(IP, isp)

t.test('a first grant makes the rows of the day, of the IP and of the provider', async (t) => {
  const { database, reserve } = openAllowance(t)
  t.same(reserve(MIDNIGHT, 3), {
    ip: IP,
    isp: 'gmail',
    day: utcDay(MIDNIGHT),
    at: MIDNIGHT,
    granted: 3,
    nextAt: null,
    reason: null,
    // 50 over a day, 25 for gmail; three fewer of each.
    interval: DAY / 22,
  })
  t.same(dayRow(database, '*'), { cap: 50, granted: 3, refunded: 0 })
  t.same(dayRow(database, 'gmail'), { cap: 25, granted: 3, refunded: 0 })
  t.match(reserve(MIDNIGHT, 3, { cap: 200 }), { granted: 2 })
  t.match(dayRow(database, '*'), { cap: 50 }, 'the cap of a day is that of its first grant')
})

t.test('what is not granted, until when and why', async (t) => {
  for (const [what, steps, wanted] of [
    ['the burst', [[MIDNIGHT, 8, {}]], { granted: 5, nextAt: MIDNIGHT + 1_053_659, reason: 'warmup_hour' }],
    [
      'the pace of the provider',
      [[MIDNIGHT, 8, { cap: 1_000, providerCaps: { gmail: 100 } }]],
      { granted: 5, nextAt: MIDNIGHT + 712_088, reason: 'provider_share' },
    ],
    [
      'the hour of a small cap',
      [[MIDNIGHT, 6, { cap: 6, providerCaps: { gmail: 6 } }]],
      { granted: 5, nextAt: MIDNIGHT + 65 * MINUTE, reason: 'warmup_hour' },
    ],
    [
      'the pace of the IP',
      [
        [MIDNIGHT, 4, {}],
        [MIDNIGHT, 4, { isp: 'yahoo' }],
      ],
      { granted: 1, nextAt: MIDNIGHT + 1_218_580, reason: 'warmup_hour' },
    ],
    [
      'the hour',
      [
        [MIDNIGHT + 20 * HOUR, 5, {}],
        [MIDNIGHT + 20 * HOUR + 40 * MINUTE, 5, { isp: 'yahoo' }],
      ],
      { granted: 2, nextAt: MIDNIGHT + 20 * HOUR + 65 * MINUTE, reason: 'warmup_hour' },
    ],
    [
      'the day',
      [
        [MIDNIGHT, 1, { cap: 1 }],
        [MIDNIGHT + HOUR, 1, { cap: 1 }],
      ],
      { granted: 0, nextAt: MIDNIGHT + DAY, reason: 'warmup_day', interval: DAY },
    ],
    [
      'the share of the provider',
      [
        [MIDNIGHT, 2, { providerCaps: { gmail: 2 } }],
        [MIDNIGHT + HOUR, 1, {}],
      ],
      { granted: 0, nextAt: MIDNIGHT + DAY, reason: 'provider_share' },
    ],
    [
      'before the active hours',
      [[MIDNIGHT, 1, { windowFrom: MIDNIGHT + 6 * HOUR }]],
      { granted: 0, nextAt: MIDNIGHT + 6 * HOUR, reason: 'warmup_day' },
    ],
    [
      'behind them',
      [[MIDNIGHT + 23 * HOUR, 1, { windowFrom: MIDNIGHT + HOUR, windowTo: MIDNIGHT + 22 * HOUR }]],
      { granted: 0, nextAt: MIDNIGHT + DAY + HOUR, reason: 'warmup_day' },
    ],
    [
      'at the end of the day the pace of tomorrow',
      [
        [MIDNIGHT, 5, {}],
        [MIDNIGHT + 60, 9, { windowTo: MIDNIGHT + 61 }],
      ],
      { granted: 0, nextAt: MIDNIGHT + DAY },
    ],
  ] as const) {
    const { reserve } = openAllowance(t)
    t.match(steps.map((step) => reserve(step[0], step[1], step[2])).at(-1), wanted, what)
  }
})

t.test('an isp that no share names has one row of its own, also one with a name of the language', async (t) => {
  const { database, reserve } = openAllowance(t)
  for (const isp of ['example.org', 'constructor', '__proto__']) {
    t.equal(reserve(MIDNIGHT, 1, { isp }).granted, 1)
    t.match(dayRow(database, isp), { cap: 18, granted: 1 })
  }
})

t.test('a refund goes back to the day and the minutes of its grant', async (t) => {
  const { database, reserve, refund } = openAllowance(t)
  const evening = MIDNIGHT + DAY - MINUTE
  const { ip, isp, day, at } = reserve(evening, 1)
  const before = database.prepare('select arrival_at as at from warmup_days').all() as { at: number }[]
  refund({ ip, isp, day, at })
  t.same(dayRow(database, '*'), { cap: 50, granted: 0, refunded: 1 })
  t.same(dayRow(database, 'gmail'), { cap: 50 / 2, granted: 0, refunded: 1 })
  t.same(database.prepare('select sum(granted) as sum from ip_slots').get(), { sum: 0 })
  const after = database.prepare('select arrival_at as at from warmup_days').all() as { at: number }[]
  t.ok(after.every((row, index) => Math.abs(row.at - evening) < 1 && row.at < (before[index]?.at ?? 0)))
  refund({ ip, isp, day, at })
  t.match(dayRow(database, '*'), { granted: 0, refunded: 1 }, 'never below zero')
  refund({ ip: '127.0.0.99', isp, day, at })
  t.equal(reserve(evening, 9).granted, 5, 'and can be granted again')
})

t.test('an even pace over an idle morning, and the whole cap in the end', async (t) => {
  for (const cap of [50, 200, 1_000]) {
    const { reserve } = openAllowance(t)
    const noon = MIDNIGHT + 12 * HOUR
    let sent = 0
    for (let at = noon; at < MIDNIGHT + DAY; at += 5 * MINUTE) {
      sent += reserve(at, cap, { cap, defaultProviderCap: cap, isp: 'example.org' }).granted
      const share = (at - noon) / (12 * HOUR)
      const burst = Math.max(5, cap * 0.02)
      t.ok(Math.abs(sent - cap * share) <= burst + cap / 144 + 2, `${cap}: ${sent} after ${share}`)
    }
    t.equal(sent, cap)
  }
})

t.test('whoever comes back when told gets the whole day', async (t) => {
  for (const cap of [1, 7, 50, 350]) {
    const { reserve } = openAllowance(t)
    let now = MIDNIGHT + 3
    let sent = 0
    let asked = 0
    while (now < MIDNIGHT + DAY) {
      const { granted, nextAt, reason } = reserve(now, 1_000, { cap, defaultProviderCap: cap, isp: 'example.org' })
      if (granted === 0 && asked > 0) t.fail(`asked in vain at ${now}: ${reason}`)
      asked += 1
      sent += granted
      now = nextAt ?? now + 1
    }
    t.equal(sent, cap, `${cap}, asked ${asked} times`)
  }
})

/** Recounts what was granted, less refunds, and fails on every limit that was passed. */
function createRecount(t: Test) {
  const standing: (Grant & { cap: number; share: number; hourly: number })[] = []
  const sum = (those: (grant: Grant) => boolean): number => standing.filter(those).length
  return {
    standing,
    add({ ip, isp, day, at, granted }: Reservation, limits: { cap: number; share: number; hourly: number }): void {
      for (let index = 0; index < granted; index++) standing.push({ ip, isp, day, at, ...limits })
    },
    check(ip: string, isp: string, now: number, limits: { cap: number; share: number; hourly: number }): void {
      const day = utcDay(now)
      const ofDay = sum((grant) => grant.ip === ip && grant.day === day)
      const ofProvider = sum((grant) => grant.ip === ip && grant.day === day && grant.isp === isp)
      const ofHour = sum((grant) => grant.ip === ip && grant.at > now - HOUR && grant.at <= now)
      if (ofDay > limits.cap) t.fail(`day: ${ofDay} of ${limits.cap}`)
      if (ofProvider > limits.share) t.fail(`provider: ${ofProvider} of ${limits.share}`)
      if (ofHour > limits.hourly) t.fail(`hour: ${ofHour} of ${limits.hourly}`)
    },
  }
}

t.test('no order of asks, refunds, midnights and leaps of the clock passes a cap', async (t) => {
  for (let seed = 1; seed <= (isFull ? 200 : 8); seed++) {
    const { reserve, refund } = openAllowance(t)
    const random = randomSource(seed)
    const cap = random.oneOf([5, 20, 50, 100, 350])
    const recount = createRecount(t)
    let now = MIDNIGHT + random.integer(DAY)
    for (let round = 0; round < 1_500; round++) {
      now += random.integer(random.oneOf([10, MINUTE, 20 * MINUTE, 2 * HOUR]))
      if (random.integer(40) === 0) now -= random.integer(random.oneOf([MINUTE, 3 * HOUR]))
      const isp = random.oneOf(['gmail', 'outlook', 'example.org'])
      if (random.integer(4) === 0 && recount.standing.length > 0) {
        // What was granted a while ago cannot come back: a try ends within its lease.
        const index = recount.standing.length - 1 - random.integer(Math.min(8, recount.standing.length))
        for (const grant of recount.standing.splice(index, 1)) refund(grant)
        continue
      }
      const rule = allowanceRule(now, { cap })
      const hourly = Math.ceil(Math.max(5, cap * 0.125))
      const limits = { cap, share: rule.providerCaps[isp] ?? rule.defaultProviderCap, hourly }
      recount.add(reserve(now, random.integer(12) + 1, { cap, isp }), limits)
      recount.check(IP, isp, now, limits)
    }
    t.ok(recount.standing.length >= cap, `seed ${seed}, cap ${cap}: ${recount.standing.length} granted`)
  }
})

t.test('eight callers at once get together what one would get', async (t) => {
  const location = locationIn(t.testdir({}))
  const { store } = await openTestStore(location)
  const recount = createRecount(t)
  let now = MIDNIGHT + 23 * HOUR
  const random = randomSource(8)
  for (let round = 0; round < (isFull ? 2_000 : 120); round++) {
    now += random.integer(10 * MINUTE)
    const callers = Array.from({ length: 8 }, async () => {
      const isp = random.oneOf(['gmail', 'outlook', 'yahoo'])
      const at = now + random.integer(1_000)
      for (const reservation of await store.reserveAllowance(ask(at, random.integer(6) + 1, { isp }))) {
        const rule = allowanceRule(at)
        recount.add(reservation, { cap: 50, share: rule.providerCaps[isp] ?? 0, hourly: 7 })
      }
    })
    await Promise.all(callers)
    for (const isp of ['gmail', 'outlook', 'yahoo']) {
      recount.check(IP, isp, now + 1_000, { cap: 50, share: allowanceRule().providerCaps[isp] ?? 0, hourly: 7 })
    }
  }
  t.ok(recount.standing.length > 20, `${recount.standing.length} granted`)
  const days = await store.warmupDays(IP, utcDay(MIDNIGHT))
  const granted = days.filter(({ isp }) => isp === '*').reduce((sum, day) => sum + day.granted, 0)
  t.equal(granted, recount.standing.length)
  await store.close()

  const again = await openTestStore(location)
  t.same(await again.store.warmupDays(IP, utcDay(MIDNIGHT)), days, 'a restart forgets nothing')
  await again.store.close()
})

t.test('an ask costs the store thread less than 50 microseconds', async (t) => {
  const { database, reserveAll } = openAllowance(t)
  const asks = 5_000
  let at = MIDNIGHT
  const measure = (): number => {
    const started = performance.now()
    database.transaction(() => {
      for (let index = 0; index < asks; index++) {
        at += 30
        const isp = `isp-${index % 50}`
        reserveAll(ask(at, 3, { cap: 100_000, defaultProviderCap: 50_000, isp, ip: `127.0.1.${index % 64}` }))
      }
    })()
    return ((performance.now() - started) / asks) * 1_000
  }
  // The best of some: what else the machine does only makes it slower.
  const microseconds = Math.min(measure(), measure(), measure())
  t.comment(`${microseconds.toFixed(1)} microseconds for one ask`)
  t.ok(microseconds < 250, 'not five times slower')
})
