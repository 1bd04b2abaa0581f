/**
 * What is counted of IPs equals a recount of what happened: random outcomes, late bounces, complaints, opens and clicks
 * over three days, with a restart between.
 */
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import t from 'tap'
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import { utcDay } from '../../src/base/utc-day.ts'
import type { BounceType, DeliveryOutcome } from '../../src/mail/reply/delivery-outcome.ts'
import type { SmtpStage } from '../../src/mail/reply/smtp-reply.ts'
import type { ClaimedMessage, OutcomeRecord } from '../../src/store/records/claim-records.ts'
import type { Store } from '../../src/store/store.ts'
import type { IpHour } from '../../src/store/records/warmup-records.ts'
import { randomSource } from '../support/random-source.ts'
import { locationIn, openTestStore } from './sqlite-support.ts'
import { acceptRequest, claim, delivered, newMessage, outcomeRecord } from './store-samples.ts'
import { ask, IP, MIDNIGHT } from './warmup-samples.ts'

const IPS = [IP, '127.0.0.12']
const ISPS = ['gmail', 'outlook', 'example.org']
const OUTCOMES = process.env['TEST_SCALE'] === 'full' ? 20_000 : 1_000

type Counter = Exclude<keyof IpHour, 'ip' | 'isp' | 'hour'>
interface Fact {
  ip: string
  isp: string
  at: number
  counter: Counter
}

const BOUNCES: Record<Exclude<BounceType, 'suppressed'>, Counter> = {
  hard: 'bouncedHard',
  soft: 'bouncedSoft',
  block: 'bouncedBlock',
  undetermined: 'bouncedUndetermined',
}

const DAY_COUNTERS = ['firstAttempts', 'delivered', 'hard', 'soft', 'block', 'deferred', 'complained'] as const

/** Sums of facts by a name made of each. */
function sumUp(facts: readonly Fact[], nameOf: (fact: Fact) => string): Record<string, Record<string, number>> {
  const sums: Record<string, Record<string, number>> = {}
  for (const fact of facts) {
    const sum = (sums[nameOf(fact)] ??= {})
    sum[fact.counter] = (sum[fact.counter] ?? 0) + 1
  }
  return sums
}

/** The same of rows, without what is zero. */
function rowsBy(rows: readonly object[], nameOf: (row: IpHour) => string): Record<string, Record<string, number>> {
  return Object.fromEntries(
    (rows as IpHour[]).map((row) => {
      const { ip: _ip, isp: _isp, hour: _hour, ...counts } = row
      return [nameOf(row), Object.fromEntries(Object.entries(counts).filter(([, count]) => count > 0))]
    }),
  )
}

interface WarmupFact {
  ip: string
  day: string
  isp: string
  counter: string
  by: number
}

t.test('sums by hour, day and provider', async (t) => {
  const location = locationIn(t.testdir({}))
  let { store } = await openTestStore(location)
  const random = randomSource(5)
  const facts: Fact[] = []
  const warmup: WarmupFact[] = []
  const firstTried = new Map<string, number>()
  const finals: { message: ClaimedMessage; ip: string; isp: string; kind: string }[] = []
  const ispOf = (message: ClaimedMessage): string => ISPS[message.key % ISPS.length] ?? ''
  const reserved: Promise<unknown>[] = []
  let recorded = 0
  let now = MIDNIGHT
  let { epoch } = await store.beginEpoch(now, now)

  /** One try with everything that should be counted of it. */
  const tryOnce = (message: ClaimedMessage): OutcomeRecord => {
    const ip = message.lastIp !== null && random.integer(4) > 0 ? message.lastIp : random.oneOf(IPS)
    const isp = ispOf(message)
    const outcome = randomOutcome()
    const stage: SmtpStage = outcome.kind === 'path-failed' ? 'connect' : random.oneOf(['rcpt', 'dot'])
    const at = now + recorded
    const durationMilliseconds = 1 + random.integer(90_000)
    recorded += 1
    if (stage !== 'connect') noteAttempt(message, { ip, isp, at, outcome, durationMilliseconds })
    const record = outcomeRecord(message, outcome, { at, ip, stage, durationMilliseconds })
    const category = outcome.kind === 'deferred' ? random.oneOf(['rate', 'greylist'] as const) : null
    const isFirst = firstTried.get(`${message.key} ${ip}`) === at
    if (category === 'rate' && isFirst) warmup.push({ ip, day: utcDay(at), isp, counter: 'deferred', by: 1 })
    return { ...record, isp, category }
  }

  const noteAttempt = (
    message: ClaimedMessage,
    {
      ip,
      isp,
      at,
      outcome,
      durationMilliseconds,
    }: { ip: string; isp: string; at: number; outcome: DeliveryOutcome; durationMilliseconds: number },
  ): void => {
    const end = at + durationMilliseconds
    const key = `${message.key} ${ip}`
    const firstAt = firstTried.get(key) ?? at
    const day = utcDay(firstAt)
    facts.push({ ip, isp, at: end, counter: 'attempts' })
    if (firstAt === at) {
      firstTried.set(key, at)
      facts.push({ ip, isp, at: end, counter: 'messages' })
      warmup.push({ ip, day, isp, counter: 'firstAttempts', by: 1 })
      const rule = { cap: 1_000_000, maxBurst: 1_000_000, burstFraction: 1 }
      reserved.push(store.reserveAllowance(ask(at, 1, { ip, isp, ...rule })))
    }
    if (outcome.kind === 'delivered') {
      facts.push({ ip, isp, at: end, counter: 'delivered' })
      warmup.push({ ip, day, isp, counter: 'delivered', by: 1 })
      finals.push({ message, ip, isp, kind: 'delivered' })
    } else if (outcome.kind === 'bounced' && outcome.bounce.type !== 'suppressed') {
      facts.push({ ip, isp, at: end, counter: BOUNCES[outcome.bounce.type] })
      warmup.push({ ip, day, isp, counter: outcome.bounce.type, by: 1 })
    } else {
      facts.push({ ip, isp, at: end, counter: 'deferred' })
    }
  }

  const randomOutcome = (): DeliveryOutcome => {
    const retryAt = now + random.integer(5 * HOUR)
    switch (random.integer(10)) {
      case 0:
      case 1:
        return { kind: 'deferred', retryAt }
      case 2:
        return { kind: 'path-failed', retryAt }
      case 3:
        return { kind: 'ambiguous', retryAt }
      case 4:
        return {
          kind: 'bounced',
          bounce: {
            type: random.oneOf(['hard', 'soft', 'block', 'undetermined']),
            category: 'unknown',
            code: '5.0.0',
            description: 'no',
          },
        }
      default:
        return delivered
    }
  }

  while (recorded < OUTCOMES) {
    now = MIDNIGHT + Math.floor((recorded / OUTCOMES) * 3 * DAY) + random.integer(MINUTE)
    const messages = Array.from({ length: 8 }, () => newMessage({ expiresAt: now + 30 * DAY }))
    await store.acceptMessages(acceptRequest({ now, messages: [...messages, newMessage({ isCaptured: true })] }))
    const batch = (await claim(store, epoch, now, 50)).map(tryOnce)
    await Promise.all(reserved.splice(0))
    await store.recordOutcomes({ epoch, now: now + 2 * MINUTE, outcomes: batch })
    // Repeating it counts nothing.
    if (random.integer(5) === 0) await store.recordOutcomes({ epoch, now: now + 2 * MINUTE, outcomes: batch })
    if (random.integer(20) === 0) {
      await store.close()
      ;({ store } = await openTestStore(location))
      ;({ epoch } = await store.beginEpoch(now, now))
    }
  }
  await laterEvents(store, finals, { facts, warmup, firstTried, now })

  const from = MIDNIGHT
  const to = MIDNIGHT + 5 * DAY
  const hourOf = (at: number): number => Math.floor(at / HOUR) * HOUR
  for (const ip of IPS) {
    const mine = facts.filter((fact) => fact.ip === ip)
    const { hours, isps, p95 } = await store.ipStatistics(ip, from, to)
    t.same(
      rowsBy(hours, ({ hour }) => String(hour)),
      sumUp(mine, ({ at }) => String(hourOf(at))),
      'by hour',
    )
    const order = hours.map(({ hour }) => hour)
    t.same(
      order,
      order.toSorted((one, other) => one - other),
      'oldest first',
    )
    t.same(
      rowsBy(isps, ({ isp }) => isp),
      sumUp(mine, ({ isp }) => isp),
      'by provider',
    )
    t.same(Object.keys(p95).sort(), [...ISPS].sort())
    for (const duration of Object.values(p95)) t.ok(duration > 70_000 && duration < 95_000, `p95 ${duration}`)

    // Not whole days: the hours at both ends.
    const [begin, end] = [from + 7 * HOUR, from + 2 * DAY + 5 * HOUR]
    const part = await store.ipStatistics(ip, begin, end)
    const partly = mine.filter(({ at }) => at >= begin && at < end)
    t.same(
      rowsBy(part.isps, ({ isp }) => isp),
      sumUp(partly, ({ isp }) => isp),
      'a part of the time',
    )
    const few = await store.ipStatistics(ip, begin, begin + 3 * HOUR)
    t.same(
      rowsBy(few.isps, ({ isp }) => isp),
      sumUp(
        mine.filter(({ at }) => at >= begin && at < begin + 3 * HOUR),
        ({ isp }) => isp,
      ),
      'hours within a day',
    )

    const days = await store.warmupDays(ip, utcDay(from))
    for (const day of days) {
      const wanted = warmup.filter(
        (fact) => fact.ip === ip && fact.day === day.day && [fact.isp, '*'].includes(day.isp),
      )
      for (const counter of DAY_COUNTERS) {
        const sum = wanted.filter((fact) => fact.counter === counter).reduce((total, { by }) => total + by, 0)
        if (day[counter] !== sum) t.equal(day[counter], sum, `${day.day} ${day.isp} ${counter}`)
      }
      if (day.isp === '*') t.equal(day.granted, day.firstAttempts, 'a grant for each first attempt')
    }
    t.ok(days.length >= 3 * (ISPS.length + 1))
    const total = mine.filter(({ counter }) => counter === 'messages')
    const byDay = await store.ipDays(ip, 9)
    t.equal(
      byDay.reduce((sum, { messages }) => sum + messages, 0),
      total.length,
    )
    t.equal((await store.ipDays(ip, 1))[0]?.day, byDay[0]?.day, 'newest first')
  }
  const mix = await store.ispMix(IPS, from)
  const wanted = sumUp(
    facts.filter(({ counter }) => counter === 'messages'),
    ({ isp }) => isp,
  )
  t.same(mix, Object.fromEntries(Object.entries(wanted).map(([isp, { messages }]) => [isp, messages])))
  await store.close()
})

/** What comes after the delivery: a bounce by mail, a complaint, an open and two clicks on one link. */
async function laterEvents(
  store: Store,
  finals: readonly { message: ClaimedMessage; ip: string; isp: string }[],
  {
    facts,
    warmup,
    firstTried,
    now,
  }: { facts: Fact[]; warmup: WarmupFact[]; firstTried: Map<string, number>; now: number },
): Promise<void> {
  const later = now + 30 * MINUTE
  const report = { now: later, sentSince: 0 }
  for (const [index, { message, ip, isp }] of finals.entries()) {
    const firstAt = firstTried.get(`${message.key} ${ip}`) ?? 0
    const fact = (counter: Counter): number => facts.push({ ip, isp, at: later, counter })
    if (index % 10 === 0) {
      const bounce = { type: 'hard', category: 'inactive', code: '5.2.1', description: 'gone' } as const
      const late = { kind: 'bounce', bounce, suppress: 'never' } as const
      await store.recordReport({ ...report, messageId: message.id, fact: late })
      fact('bouncedHard')
      warmup.push({ ip, day: utcDay(firstAt), isp, counter: 'hard', by: 1 })
      warmup.push({ ip, day: utcDay(firstAt), isp, counter: 'delivered', by: -1 })
    } else if (index % 10 === 1) {
      for (let time = 0; time < 2; time++) {
        const complaint = { kind: 'complaint', feedbackType: 'abuse' } as const
        await store.recordReport({ ...report, messageId: message.id, fact: complaint })
      }
      fact('complained')
      warmup.push({ ip, day: utcDay(later), isp, counter: 'complained', by: 1 })
    } else if (index % 10 === 2) {
      const hit = { messageId: message.id, at: later, isMachine: false, client: null }
      const link = { number: 1, url: 'https://shop.test/' }
      const hits = [
        { ...hit, link },
        { ...hit, link },
        { ...hit, link: null, isMachine: true },
      ]
      await store.recordEngagement({ now: later, hits, machineAfterDelivery: 2_000 })
      fact('opened')
      fact('clicked')
    }
  }
}

t.test('however many providers there are, the rows of a day are bounded', async (t) => {
  const location = locationIn(t.testdir({}))
  const { store } = await openTestStore(location)
  const { epoch } = await store.beginEpoch(MIDNIGHT, MIDNIGHT)
  const record = async (count: number, providerOf: (index: number) => string): Promise<void> => {
    const messages = Array.from({ length: count }, () => newMessage())
    await store.acceptMessages(acceptRequest({ now: MIDNIGHT, messages }))
    const claimed = await claim(store, epoch, MIDNIGHT, count)
    const outcomes = claimed.map((message, index) => ({
      ...outcomeRecord(message, delivered, { at: MIDNIGHT }),
      isp: providerOf(index),
    }))
    await store.recordOutcomes({ epoch, now: MIDNIGHT, outcomes })
  }
  await record(450, (index) => `domain-${index % 225}.test`)
  const { isps, hours } = await store.ipStatistics(IP, MIDNIGHT, MIDNIGHT + DAY)
  t.equal(isps.length, 201)
  const other = isps.find(({ isp }) => isp === 'other')
  t.match(other, { messages: 50, delivered: 50 })
  t.match(hours, [{ isp: '*', messages: 450 }])
  const named = isps.find(({ isp }) => isp !== 'other' && isp !== '*')?.isp ?? ''
  await record(50, (index) => (index % 2 === 0 ? named : `later-${index}.test`))
  const later = (await store.ipStatistics(IP, MIDNIGHT, MIDNIGHT + DAY)).isps
  t.equal(later.length, 201, 'who comes later gets no name')
  t.match(
    ['other', named].map((name) => later.find(({ isp }) => isp === name)?.messages),
    [75, 27],
    'who has one keeps it',
  )
  await store.close()
  const file = new Sqlite(join(location.folder, 'sternpost.db'), { readonly: true })
  t.equal(file.prepare('select count(distinct isp) from ip_hours').pluck().get(), 202, 'those of an hour too')
  file.close()
})
