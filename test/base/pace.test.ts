/**
 * An even pace over what is left (egress/README.md "Smoothing"), by its table and by properties.
 */
import t from 'tap'
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import { afterGrants, conforming, intervalOf, nextConforming, type Pace } from '../../src/base/pace.ts'
import { randomSource } from '../support/random-source.ts'

/** A day from 0 on, nothing granted. */
function paceOf(changes: Partial<Pace> = {}): Pace {
  return { left: 50, burst: 5, arrivalAt: 0, endsAt: DAY, shortestInterval: HOUR / 7, ...changes }
}

t.test('the interval spreads what is left over the time that is left', async (t) => {
  // Stage, T at midnight (egress/README.md "Smoothing"), B, H.
  for (const [left, interval, burst, hour] of [
    [50, 28.8 * MINUTE, 5, 7],
    [500, 172_800, 10, 63],
    [1_000, 86_400, 20, 125],
    [10_000, 8_640, 200, 1_250],
    [100_000, 864, 500, 12_500],
  ] as const) {
    const pace = paceOf({ left, burst, shortestInterval: HOUR / hour })
    t.equal(intervalOf(0, pace), interval)
    t.equal(conforming(0, pace), burst, 'at midnight a burst conforms')
  }
  t.equal(intervalOf(DAY / 2, paceOf()), 14.4 * MINUTE, 'an idle morning is not lost')
  t.equal(intervalOf(DAY - HOUR, paceOf()), HOUR / 7, 'but it is never shorter than the hour allows')
  t.equal(intervalOf(0, paceOf({ left: 0 })), Infinity)
})

t.test('grants and waits', async (t) => {
  const fresh = paceOf()
  const spent = afterGrants(0, fresh, 5)
  t.match(spent, { left: 45, arrivalAt: 5 * 28.8 * MINUTE })
  t.equal(afterGrants(0, fresh, 0), fresh)
  for (const [what, pace, now, count, next] of [
    ['a burst at once', fresh, 0, 5, 0],
    ['nothing right behind it', spent, 0, 0, 1_053_659],
    ['nothing while the clock is back', { ...fresh, arrivalAt: 10 * HOUR }, HOUR, 0, null],
    ['less than a burst when less is left', paceOf({ left: 3 }), 0, 3, 0],
    ['nothing when nothing is left', paceOf({ left: 0 }), 0, 0, null],
    ['one at a time without a burst', paceOf({ burst: 1 }), 0, 1, 0],
    ['nothing behind the end', fresh, DAY, 5, null],
  ] as const) {
    t.equal(conforming(now, pace), count, what)
    if (next !== null) t.ok(Math.abs((nextConforming(now, pace) ?? NaN) - next) <= 1, `${what}: next`)
  }
  t.equal(nextConforming(DAY, fresh), null)
  t.equal(nextConforming(0, paceOf({ left: 0 })), null)
})

t.test('the next time is the first at which one conforms', async (t) => {
  const random = randomSource(1)
  let waits = 0
  for (let round = 0; round < 5_000; round++) {
    const now = random.integer(DAY)
    const left = random.integer(200) + 1
    const burst = random.integer(20) + 1
    const pace = paceOf({
      left,
      burst,
      arrivalAt: now + random.integer(4 * HOUR),
      shortestInterval: HOUR / (5 + random.integer(40)),
    })
    const next = nextConforming(now, pace)
    if (next === null || next === now) {
      t.equal(next === now, conforming(now, pace) > 0, JSON.stringify({ now, pace }))
      continue
    }
    waits += 1
    if (conforming(next, pace) < 1 || conforming(next - 2, pace) > 0) t.fail(JSON.stringify({ now, pace, next }))
  }
  t.ok(waits > 1_000, `${waits} waits`)
})
