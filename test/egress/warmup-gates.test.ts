/**
 * The gates: figures of a day, or of an hour, to a verdict, at each boundary; and what closing days makes of them.
 */
import t from 'tap'
import { DAY } from '../../src/base/clock.ts'
import type { WarmupCurve } from '../../src/config/settings/warmup-settings.ts'
import { closeDays } from '../../src/egress/warmup/warmup-days.ts'
import { judgeDay, judgeHour, type DayFigures } from '../../src/egress/warmup/warmup-gates.ts'
import type { AuditRecord, IpHealth, IpRecord, WarmupDay } from '../../src/store/records/warmup-records.ts'
import { ipRecord, MIDNIGHT, shipped } from './egress-parts.ts'

const standard = shipped.warmup.curves['standard']
if (standard === undefined) throw new Error('the shipped files have a curve called standard')
const curve: WarmupCurve = standard

/** A good day: 1,000 of 1,000, all delivered. */
const figures = (changes: Partial<DayFigures> = {}): DayFigures => ({
  cap: 1_000,
  granted: 1_000,
  firstAttempts: 1_000,
  delivered: 1_000,
  hard: 0,
  soft: 0,
  block: 0,
  undetermined: 0,
  deferred: 0,
  complained: 0,
  deliveredBefore: 0,
  hadPause: false,
  ...changes,
})

t.test('figures of a day and their verdict', async (t) => {
  const cases: [string, Partial<DayFigures>, string][] = [
    ['all delivered', {}, 'advance'],
    ['half of the cap', { granted: 500 }, 'advance'],
    ['less than half', { granted: 499 }, 'hold utilization'],
    ['20 of 40', { cap: 40, granted: 20, firstAttempts: 20, delivered: 20 }, 'advance'],
    ['19 of 20', { cap: 20, granted: 19, firstAttempts: 19, delivered: 19 }, 'hold volume'],
    ['no mail at all', { granted: 0, firstAttempts: 0, delivered: 0 }, 'hold idle'],
    ['95 % delivered', { delivered: 950, soft: 50 }, 'advance'],
    ['less than 95 %', { delivered: 949, soft: 51 }, 'hold delivery'],
    ['soft, block and undetermined count', { delivered: 940, soft: 20, block: 20, undetermined: 20 }, 'hold delivery'],
    ['what is still deferred is left out', { delivered: 500, deferred: 100 }, 'advance'],
    ['nothing has ended', { delivered: 0 }, 'hold delivery'],
    ['hard bounces of 3 %', { hard: 30, delivered: 970 }, 'hold hard_bounce'],
    ['hard bounces below 3 %', { hard: 29, delivered: 971 }, 'advance'],
    ['hard bounces of 5 %', { hard: 50, delivered: 950 }, 'demote hard_bounce'],
    ['hard bounces below 5 %', { hard: 49, delivered: 951 }, 'hold hard_bounce'],
    ['one hard bounce is no rate', { cap: 20, granted: 20, firstAttempts: 20, delivered: 19, hard: 1 }, 'advance'],
    [
      'two of 40 hold, three would demote',
      { cap: 40, granted: 40, firstAttempts: 40, delivered: 38, hard: 2 },
      'hold hard_bounce',
    ],
    ['three of 40 demote', { cap: 40, granted: 40, firstAttempts: 40, delivered: 37, hard: 3 }, 'demote hard_bounce'],
    ['complaints of 0.1 %', { complained: 2, deliveredBefore: 1_000 }, 'hold complaint'],
    ['complaints below 0.1 %, two days before included', { complained: 2, deliveredBefore: 1_001 }, 'advance'],
    ['one complaint is no rate', { complained: 1 }, 'advance'],
    ['complaints of 0.3 %', { complained: 3 }, 'demote complaint'],
    ['two complaints of 0.3 % hold only', { complained: 2, delivered: 666 }, 'hold complaint'],
    ['complaints about mail of another day alone', { complained: 3, delivered: 0, granted: 0 }, 'demote complaint'],
    ['deferrals of 15 %', { deferred: 150 }, 'hold deferral'],
    ['deferrals below 15 %', { deferred: 149 }, 'advance'],
    ['deferrals of 30 %', { deferred: 300 }, 'demote deferral'],
    ['deferrals below 30 %', { deferred: 299 }, 'hold deferral'],
    ['a pause in the day', { hadPause: true }, 'hold pause'],
    ['a pause does not save from a demotion', { hadPause: true, hard: 100 }, 'demote hard_bounce'],
    ['the worst comes first', { hard: 30, deferred: 300 }, 'demote deferral'],
  ]
  for (const [name, changes, expected] of cases) {
    const { kind, reason } = judgeDay(figures(changes), curve)
    t.equal([kind, reason?.split(':', 1)[0]].join(' ').trim(), expected, name)
  }
})

t.test('too little mail is no fault; bounces, complaints, deferrals and pauses are', async (t) => {
  const isHealthy = (changes: Partial<DayFigures>): boolean => judgeDay(figures(changes), curve).isHealthy
  for (const changes of [{}, { granted: 5 }, { granted: 0 }, { granted: 100 }]) t.ok(isHealthy(changes))
  const unhealthy = [{ hard: 30 }, { complained: 9 }, { deferred: 200 }, { hadPause: true }, { delivered: 1, soft: 50 }]
  for (const changes of unhealthy) t.notOk(isHealthy(changes))
})

t.test('the last hour pauses from 50 first attempts and three cases on', async (t) => {
  const health = (changes: Partial<IpHealth>): IpHealth => ({
    firstAttempts: 50,
    hard: 0,
    complained: 0,
    delivered: 50,
    blocks: 0,
    ...changes,
  })
  const cases: [string, Partial<IpHealth>, string | undefined][] = [
    ['nothing', {}, undefined],
    ['10 % hard', { hard: 5 }, 'hard_bounce'],
    ['below 10 %', { hard: 4 }, undefined],
    ['fewer first attempts', { firstAttempts: 49, hard: 40 }, undefined],
    ['two cases', { firstAttempts: 50, hard: 2, complained: 2, delivered: 3 }, undefined],
    ['0.5 % complaints', { firstAttempts: 600, delivered: 600, complained: 3 }, 'complaint'],
    ['below 0.5 %', { firstAttempts: 601, delivered: 601, complained: 3 }, undefined],
  ]
  for (const [name, changes, expected] of cases) {
    t.equal(judgeHour(health(changes), curve.pause)?.split(':', 1)[0], expected, name)
  }
})

const dayName = (number: number): string => new Date(MIDNIGHT + number * DAY).toISOString().slice(0, 10)

/** The total row of a day: used in full and delivered. */
const row = (number: number, granted: number, changes: Partial<WarmupDay> = {}): WarmupDay => ({
  ip: '192.0.2.1',
  day: dayName(number),
  isp: '*',
  cap: granted,
  granted,
  refunded: 0,
  firstAttempts: granted,
  delivered: granted,
  hard: 0,
  soft: 0,
  block: 0,
  undetermined: 0,
  deferred: 0,
  complained: 0,
  ...changes,
})

interface Closing {
  record?: Partial<IpRecord>
  rows: WarmupDay[]
  audit?: AuditRecord[]
  /** Now, in days after the start. */
  at: number
  curve?: Partial<WarmupCurve>
}

function close({ record = {}, rows, audit = [], at, curve: changes = {} }: Closing): ReturnType<typeof closeDays> {
  const now = MIDNIGHT + at * DAY
  return closeDays({
    record: ipRecord(record),
    pool: 'default',
    curve: { ...curve, ...changes },
    now,
    days: rows,
    audit,
  })
}

const actions = ({ audit }: ReturnType<typeof closeDays>): string[] =>
  audit.map(({ action, day, toStage }) => `${day} ${action} ${toStage}`)

t.test('each day that is over is closed once, missed ones as idle', async (t) => {
  const closed = close({ rows: [row(0, 50), row(3, 100)], at: 4.2 })
  t.same(actions(closed), [
    `${dayName(0)} advance 2`,
    `${dayName(1)} hold 2`,
    `${dayName(2)} hold 2`,
    `${dayName(3)} advance 3`,
  ])
  t.match(closed.record, { stage: 3, closedDay: dayName(3), holdReason: null, daysHeld: 0 })
  t.match(closed.audit[0], { figures: { cap: 50, granted: 50, utilization: 1, delivery: 1 }, actor: 'gate' })
  t.same(close({ record: closed.record, rows: [row(3, 100)], at: 4.9 }).audit, [], 'and not again')
  t.same(close({ record: closed.record, rows: [row(3, 100)], at: 3.5 }).audit, [], 'nor after the clock was set back')
  t.same(close({ rows: [row(0, 50)], at: 0.99 }).audit, [], 'nor before its end')
})

t.test('days that a clock closed which ran ahead are closed when they come', async (t) => {
  const ahead = close({ rows: [row(0, 50)], at: 365 })
  const back = close({ record: ahead.record, audit: ahead.audit, rows: [], at: 2.2 })
  t.same(back.audit, [])
  t.equal(back.record.closedDay, dayName(2), 'today as well: it has been closed once')
  t.same(close({ record: back.record, audit: ahead.audit, rows: [], at: 2.9 }), { ...back, events: [] })
  const later = close({ record: back.record, audit: ahead.audit, rows: [row(3, 100)], at: 4.1 })
  t.same(actions(later), [`${dayName(3)} advance 3`])
})

t.test('a clock that was behind for a while closes no day twice', async (t) => {
  const closed = close({ rows: [row(0, 50), row(1, 100)], at: 2.2 })
  t.match(closed.record, { stage: 3, closedDay: dayName(1) })
  const behind = close({ record: closed.record, audit: closed.audit, rows: [], at: 0.5 })
  t.match(behind.record, { stage: 3, closedDay: dayName(0) })
  const right = close({ record: behind.record, audit: closed.audit, rows: [row(0, 50), row(1, 100)], at: 2.3 })
  t.match(right, { record: { stage: 3, closedDay: dayName(1) }, audit: [] })
})

t.test('a downtime of years is closed without a row for each of its days', async (t) => {
  const closed = close({ rows: [], at: 3_000 })
  t.ok(closed.audit.length <= 400)
  t.equal(closed.record.closedDay, dayName(2_999))
})

t.test('a demotion takes two stages, at least the first stays', async (t) => {
  const rows = [row(0, 500, { hard: 50, delivered: 450 })]
  t.equal(close({ record: { stage: 5 }, rows, at: 1 }).record.stage, 3)
  t.equal(close({ record: { stage: 2 }, rows, at: 1 }).record.stage, 1)
})

t.test('what is told: advances, demotions, new reasons to hold, and a stall', async (t) => {
  const kinds = (closing: Closing): string[] => close(closing).events.map(({ kind }) => kind)
  t.same(kinds({ rows: [row(0, 50)], at: 1 }), ['ip.warmup.advanced'])
  t.same(kinds({ record: { stage: 5 }, rows: [row(0, 500, { hard: 50 })], at: 1 }), ['ip.warmup.held'])
  t.same(kinds({ rows: [], at: 5 }), ['ip.warmup.held'], 'the same reason is told once')
  const told = close({ rows: [], at: 21 }).events
  t.same(
    told.map(({ data }) => data['reason']?.split(':', 1)[0]),
    ['idle', 'stall', 'stall'],
  )
  t.match(told[0]?.data, { ip: '192.0.2.1', pool: 'default', status: 'warming', stage: '1' })
})

t.test('a day with a pause holds, wherever the pause began and ended', async (t) => {
  const move = (at: number, fromState: string, toState: string): AuditRecord =>
    ({
      at: MIDNIGHT + at * DAY,
      ip: '192.0.2.1',
      actor: 'gate',
      action: 'pause',
      fromState,
      toState,
      fromStage: 1,
      toStage: 1,
      day: null,
      figures: {},
      reason: null,
    }) as AuditRecord
  const rows = [row(0, 50)]
  const kindOf = (record: Partial<IpRecord>, audit: AuditRecord[]): string | undefined =>
    close({ record, rows, audit, at: 1 }).audit[0]?.action
  t.equal(kindOf({}, [move(0.5, 'warming', 'paused'), move(0.7, 'paused', 'warming')]), 'hold', 'within the day')
  t.equal(kindOf({}, [move(-0.5, 'warming', 'paused'), move(0.1, 'paused', 'warming')]), 'hold', 'from before')
  t.equal(kindOf({ state: 'paused', since: MIDNIGHT + 0.9 * DAY }, []), 'hold', 'and still')
  t.equal(kindOf({}, [move(-0.5, 'warming', 'paused'), move(-0.1, 'paused', 'warming')]), 'advance', 'the day before')
  t.equal(kindOf({ state: 'paused', since: MIDNIGHT + DAY }, []), 'advance', 'paused since: the day was good')
})

t.test('the ramp ends after the last stage, or after three healthy days at the target', async (t) => {
  const last = curve.stages.length
  t.match(close({ record: { stage: last }, rows: [row(0, 100_000)], at: 1 }).record, { state: 'warmed', stage: last })
  const target = { stage: 5, targetDailyVolume: 500 }
  const three = close({ record: target, rows: [row(0, 500), row(1, 30), row(2, 500)], at: 3 })
  t.equal(three.record.state, 'warmed', 'little mail is healthy too')
  t.same(three.events.map(({ kind }) => kind).at(-1), 'ip.warmup.completed')
  const idle = close({ record: target, rows: [row(0, 500), row(2, 500)], at: 3 })
  t.match(idle.record, { state: 'warming', stage: 5, daysAtTarget: 2 }, 'a day without mail does not count')
  const sick = close({ record: target, rows: [row(0, 500), row(1, 500, { deferred: 100 }), row(2, 500)], at: 3 })
  t.match(sick.record, { state: 'warming', stage: 5, daysAtTarget: 1 }, 'an unhealthy one begins again')
  const paused = close({ record: { stage: last, state: 'paused', since: MIDNIGHT + DAY }, rows: [row(0, 9e4)], at: 1 })
  t.equal(paused.record.state, 'paused', 'never out of a pause')
})

t.test('a stall lets low volume graduate when the operator says so', async (t) => {
  const stall = { stall: { days: 10, action: 'complete' as const } }
  const rows = Array.from({ length: 12 }, (_, number) => row(number, 10, { cap: 50 }))
  t.equal(close({ rows, at: 12, curve: stall }).record.state, 'warmed')
  t.equal(close({ rows, at: 9, curve: stall }).record.state, 'warming', 'not before ten days')
  t.equal(close({ rows, at: 12 }).record.state, 'warming', 'not by itself')
  t.equal(close({ rows: [], at: 12, curve: stall }).record.state, 'warming', 'not without mail')
  const sick = rows.map((one) => ({ ...one, hard: 2, delivered: 8 }))
  t.equal(close({ rows: sick, at: 12, curve: stall }).record.state, 'warming', 'not for its health')
  const sickOn = (day: number, at: number): string => {
    const ofDay = rows.map((one, number) => (number === day ? { ...one, hard: 2, delivered: 8 } : one))
    const first = close({ rows: ofDay, at: at - 1, curve: stall })
    return close({ record: first.record, rows: ofDay, audit: first.audit.toReversed(), at, curve: stall }).record.state
  }
  t.equal(sickOn(5, 11), 'warming', 'not while one of the ten days was unhealthy')
  t.equal(sickOn(1, 12), 'warmed', 'ten days behind it')
})
