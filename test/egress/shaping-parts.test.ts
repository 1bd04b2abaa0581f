/** The parts of shaping that are tables and arithmetic: rates, concurrency, rules, and what is stored of a path. */
import fc from 'fast-check'
import t from 'tap'
import { DAY, HOUR, MINUTE, SECOND } from '../../src/base/clock.ts'
import { countMatch, createReplyRules } from '../../src/egress/shaping/reply-rules.ts'
import { limitNow, nextDoublingAt, shapedPath } from '../../src/egress/shaping/path-limits.ts'
import {
  forgetConcurrency,
  halve,
  isAsNew,
  newConcurrency,
  noteDelivered,
  noteEnded,
  noteEndedWell,
  noteOpened,
  noteTraffic,
  openConnections,
  usableConnections,
} from '../../src/egress/shaping/concurrency.ts'
import {
  IP_STEPS,
  isHalfOpen,
  newLadder,
  notePassed,
  PATH_STEPS,
  stepAt,
  suspend,
  type Ladder,
} from '../../src/egress/shaping/ladder.ts'
import { giveTokensBack, nextTokenAt, takeTokens, tokensAt } from '../../src/base/pace.ts'
import { messagePace } from '../../src/egress/shaping/message-rates.ts'
import { pathTo, reply, SHIPPED_PROVIDERS } from './shaping-world.ts'

const BEGIN = Date.UTC(2026, 10, 21)
const { replies } = SHIPPED_PROVIDERS
const RULES = createReplyRules(replies)

t.test('every shipped rule catches its own example, for its own provider, before any other', async (t) => {
  t.ok(replies.length >= 40)
  for (const rule of replies) {
    const provider = rule.provider === 'any' ? null : rule.provider
    const [first, ...also] = RULES(reply(rule.example), 'dot', provider).map(({ id }) => id)
    if (rule.also) t.ok(also.includes(rule.id), rule.id)
    else t.equal(first, rule.id)
  }
})

t.test('rules see refusals of their provider and stage; after the first, those that say so', async (t) => {
  const idsFor = (text: string, provider: string | null): string[] =>
    RULES(reply(text), 'mail', provider).map(({ id }) => id)
  t.strictSame(idsFor('451 4.7.500 Server busy.', 'outlook'), ['outlook-busy', 'outlook-busy-long'])
  t.strictSame(idsFor('451 4.7.500 Server busy.', 'office365'), ['office365-busy'])
  t.strictSame(idsFor('250 blocked using spamhaus', null), [], 'a success')
  t.strictSame(idsFor('554 blocked using spamhaus', 'google'), ['blocklisted'], 'general ones come last')
  const [any] = replies.filter(({ id }) => id === 'any-rate')
  if (any === undefined) throw new Error('any-rate is gone')
  const staged = createReplyRules([
    { ...any, id: 'late', stage: ['connect'] },
    { ...any, id: 'early', stage: ['ehlo'] },
  ])
  const at = (stage: 'banner' | 'starttls' | 'rcpt'): string[] =>
    staged(reply('450 rate limit'), stage, null).map(({ id }) => id)
  t.strictSame([at('banner'), at('starttls'), at('rcpt')], [['late'], ['early'], []])
  const long = `450 ${'x'.repeat(3_000)} rate limit`
  t.strictSame(RULES({ code: 450, enhancedCode: null, text: long }, 'dot', null), [], 'only 2,048 characters')
})

t.test('matches are counted within a sliding time, and anew after they were enough', async (t) => {
  const counts = new Map<string, number[]>()
  const threshold = { count: 3, within_milliseconds: HOUR }
  const at = (minutes: number): boolean => countMatch(counts, 'a', threshold, BEGIN + minutes * MINUTE)
  t.strictSame([0, 30, 61, 62].map(at), [false, false, false, true], 'the first is over after an hour')
  t.strictSame([63, 64, 65].map(at), [false, false, true])
  t.equal(countMatch(counts, 'b', { count: 1, within_milliseconds: null }, BEGIN), true)
})

t.test('a rate is kept exactly over any time, and a rest saves up one burst', async (t) => {
  const between = (min: number, max: number): fc.Arbitrary<number> => fc.integer({ min, max })
  const rate = fc.record({ count: between(1, 5_000), per_milliseconds: fc.constantFrom(SECOND, MINUTE, HOUR) })
  const steps = fc.array(fc.tuple(between(0, 10_000), between(1, 300)), { maxLength: 60 })
  fc.assert(
    fc.property(rate, steps, (given, moves) => {
      const pace = messagePace(given)
      const state = { arrivalAt: 0 }
      let [now, granted] = [BEGIN, 0]
      for (const [wait, count] of moves) {
        now += wait
        const taken = takeTokens(state, pace, now, count)
        granted += taken.granted
        if (taken.nextAt !== null) {
          if (tokensAt(state, pace, taken.nextAt) < 1) return false
          if (taken.nextAt > now + 1 && tokensAt(state, pace, taken.nextAt - 1) > 0) return false
        }
      }
      return granted <= pace.burst + (now - BEGIN) / pace.interval + 1e-3
      // The example is one whose interval is as far above a whole millisecond as is rounded off.
    }),
    { examples: [[{ count: 2_857, per_milliseconds: MINUTE }, [[0, 48]]]] },
  )
  // Asked whenever there is a token, an hour brings what the rate says.
  for (const [count, milliseconds] of [
    [1, MINUTE],
    [7, MINUTE],
    [10_000, HOUR],
  ] as const) {
    const pace = messagePace({ count, per_milliseconds: milliseconds })
    const state = { arrivalAt: 0 }
    let granted = 0
    for (let now = BEGIN; now < BEGIN + HOUR; now = nextTokenAt(state, pace, now + 1)) {
      granted += takeTokens(state, pace, now, 1_000).granted
    }
    const expected = (count * HOUR) / milliseconds
    t.ok(Math.abs(granted - expected) <= pace.burst, `${granted} of ${expected}`)
  }
})

t.test('bursts: a second of messages, three connections; what was not sent is given back', async (t) => {
  const cases: [number, number, number][] = [
    [100, SECOND, 100],
    [5_000, SECOND, 100],
    [10, SECOND, 10],
    [10, MINUTE, 1],
    [1, HOUR, 1],
    [90, MINUTE, 1],
  ]
  for (const [count, milliseconds, burst] of cases) {
    t.equal(messagePace({ count, per_milliseconds: milliseconds }).burst, burst, `${count} per ${milliseconds}`)
  }
  const pace = messagePace({ count: 10, per_milliseconds: SECOND })
  const state = { arrivalAt: 0 }
  t.strictSame(takeTokens(state, pace, BEGIN, 25), { granted: 10, nextAt: BEGIN + 100 })
  giveTokensBack(state, pace, 4)
  t.equal(tokensAt(state, pace, BEGIN), 4)
  t.equal(tokensAt(state, pace, BEGIN - DAY), 0, 'a clock that goes back')
  t.equal(nextTokenAt(state, pace, BEGIN - DAY), BEGIN - DAY + 100, 'costs one burst at most')
  t.equal(tokensAt(state, pace, BEGIN + DAY), 10)
})

t.test('concurrency grows by one for as many messages as connections are in use, while all of them are', async (t) => {
  const state = newConcurrency(false, BEGIN)
  const deliver = (messages: number): number => {
    for (let delivered = 0; delivered < messages; delivered++) noteDelivered(state, 4)
    return usableConnections(state, BEGIN)
  }
  noteOpened(state, BEGIN, 4)
  t.equal(deliver(100), 2, 'one of two says nothing of a third')
  noteOpened(state, BEGIN, 4)
  t.equal(deliver(1), 2)
  t.equal(deliver(1), 3)
  t.equal(deliver(100), 3, 'the third is not open')
  noteOpened(state, BEGIN, 4)
  t.equal(deliver(3), 4)
  noteOpened(state, BEGIN, 4)
  t.equal(deliver(100), 4, 'up to the limit')
})

t.test('concurrency grows by one for each round of full connections, and halves at most every 10 s', async (t) => {
  const state = newConcurrency(false, BEGIN)
  let now = BEGIN
  const round = (count: number, delivered = 1): number => {
    now += SECOND
    for (let opened = 0; opened < count; opened++) noteOpened(state, now, 10)
    for (let opened = 0; opened < count; opened++) noteEndedWell(state, now, 10, delivered)
    return usableConnections(state, now)
  }
  const table: [number, number, number][] = [
    // connections in use, delivered, usable then
    [2, 1, 3],
    [3, 1, 4],
    [1, 1, 4],
    [4, 0, 4],
    [4, 9, 5],
    [5, 1, 6],
  ]
  for (const [count, delivered, usable] of table) {
    t.equal(round(count, delivered), usable, `${count} that delivered ${delivered}`)
  }
  for (let times = 0; times < 30; times++) round(usableConnections(state, now))
  t.equal(usableConnections(state, now), 10, 'up to the limit')
  halve(state, now)
  halve(state, now + 9 * SECOND)
  t.equal(usableConnections(state, now), 5)
  for (let times = 1; times < 10; times++) halve(state, now + times * 10 * SECOND)
  t.equal(usableConnections(state, now), 1, 'never below 1')
  t.equal(usableConnections(newConcurrency(true, now), now), 1, 'a new IP begins with one')
})

t.test('without traffic for 10 min concurrency falls to 2, and lost ends are forgotten', async (t) => {
  const state = { ...newConcurrency(false, BEGIN), c: 8.5 }
  t.equal(usableConnections(state, BEGIN + 10 * MINUTE - 1), 8)
  t.equal(usableConnections(state, BEGIN + 10 * MINUTE), 2)
  noteTraffic(state, BEGIN + 11 * MINUTE)
  t.equal(usableConnections(state, BEGIN + 11 * MINUTE), 2, 'for good')
  noteOpened(state, BEGIN + 11 * MINUTE, 10)
  noteOpened(state, BEGIN + 12 * MINUTE, 10)
  noteEnded(state, BEGIN + 12 * MINUTE)
  t.equal(openConnections(state, BEGIN + 13 * MINUTE), 1)
  t.equal(openConnections(state, BEGIN + 43 * MINUTE), 0)
})

t.test('what was learnt of a path is lost above 2 after an hour, below it after a day', async (t) => {
  const state = { ...newConcurrency(false, BEGIN), c: 8.5 }
  forgetConcurrency(state, BEGIN + HOUR, false)
  t.ok(isAsNew(state))
  const slow = { ...newConcurrency(false, BEGIN), c: 1 }
  forgetConcurrency(slow, BEGIN + HOUR, false)
  t.notOk(isAsNew(slow), 'a path that was in trouble begins with one')
  forgetConcurrency(slow, BEGIN + DAY, true)
  t.ok(isAsNew(slow))
})

t.test('limits of rules hold for their time, then double back every 10 min', async (t) => {
  const normal = { ...SHIPPED_PROVIDERS.default, connections: 5 }
  const limit = {
    rule: 'a',
    cause: 'x',
    since: BEGIN,
    until: BEGIN + HOUR,
    rate: { count: 10, per_milliseconds: MINUTE },
    connections: 1,
    messagesPerConnection: 2,
  }
  const after = (minutes: number): unknown => {
    const left = limitNow(limit, normal, BEGIN + minutes * MINUTE)
    return left === null ? null : [left.rate?.count ?? null, left.connections, left.messagesPerConnection]
  }
  t.strictSame(after(0), [10, 1, 2])
  t.strictSame(after(59), [10, 1, 2])
  t.strictSame(after(60), [20, 2, 4])
  t.strictSame(after(70), [40, 4, 8])
  t.strictSame(after(80), [80, null, 16])
  t.strictSame(after(140), [5_120, null, null])
  t.equal(after(150), null, '100/second again')
  t.equal(nextDoublingAt(limit, BEGIN), BEGIN + HOUR)
  t.equal(nextDoublingAt(limit, BEGIN + 75 * MINUTE), BEGIN + 80 * MINUTE)
})

t.test('the ladder: longer after each block of a probe, a step down for each quiet day', async (t) => {
  const minutesOf = (ladder: Ladder, now: number, steps: readonly number[], duration: number | null = null): number => {
    const made = suspend(ladder, { now, steps, duration, rule: null, cause: 'x', isBlock: true })
    return made === null ? 0 : (made.until - made.since) / MINUTE
  }
  for (const [steps, expected] of [
    [PATH_STEPS, [15, 30, 60, 120, 240, 480, 480]],
    [IP_STEPS, [60, 120, 240, 480, 960, 1_440, 1_440]],
  ] as const) {
    const ladder = newLadder()
    let now = BEGIN
    for (const minutes of expected) {
      t.equal(minutesOf(ladder, now, steps), minutes)
      t.equal(minutesOf(ladder, now, steps), 0, 'the same block')
      now += minutes * MINUTE
      t.equal(isHalfOpen(ladder, now), true)
    }
    t.equal(stepAt(ladder, ladder.blockedAt + DAY - 1), steps.length)
    t.equal(stepAt(ladder, ladder.blockedAt + DAY), steps.length - 1)
    t.strictSame([notePassed(ladder), notePassed(ladder), notePassed(ladder)], [false, false, true])
    const later = ladder.blockedAt + 4 * DAY
    t.equal(minutesOf(ladder, later, steps), expected[steps.length - 4], 'from the step it fell to')
  }
  const byRule = newLadder()
  t.equal(minutesOf(byRule, BEGIN, PATH_STEPS, 2 * HOUR), 120)
  t.equal(minutesOf(byRule, BEGIN + 2 * HOUR, PATH_STEPS, 2 * HOUR), 240, 'a block of its probe doubles it')
})

t.test('overrides of a pool count where they are tighter', async (t) => {
  const limits = { ...SHIPPED_PROVIDERS.default, connections: 5, messages_per_connection: 50 }
  const path = shapedPath(
    {
      address: '192.0.2.1',
      newIpLimits: null,
      poolLimits: {
        google: { connections: 2, messages_per_connection: 500, rate: { count: 10, per_milliseconds: MINUTE } },
      },
    },
    { provider: 'google', isp: 'gmail', route: 'google', limits },
  )
  t.match(path, { key: '192.0.2.1 google', ip: '192.0.2.1', route: 'google', provider: 'google', isp: 'gmail' })
  t.strictSame(path.limits, { ...limits, connections: 2, rate: { count: 10, per_milliseconds: MINUTE } })
  t.equal(pathTo('google').limits.failures, 5)
  const poolLimits = { default: { connections: 2 } }
  const ip = { address: '192.0.2.1', newIpLimits: null, poolLimits }
  const nobody = { provider: null, isp: 'example.net', route: 'site-1', limits: SHIPPED_PROVIDERS.default }
  const site = shapedPath(ip, nobody)
  t.equal(site.limits.connections, 2, 'hosts that are no provider of the file')
  t.equal(shapedPath(ip, { provider: 'google', isp: 'gmail', route: 'google', limits }).limits.connections, 5)
})
