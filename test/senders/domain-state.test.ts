/**
 * What a check makes of a domain's state and keys, and when the next one is due: pure rules by tables.
 */
import t from 'tap'
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import { algorithmsToRotate, isRotating, keysAfterCheck } from '../../src/senders/records/domain-state.ts'
import { canSend, standingAfterCheck } from '../../src/senders/records/domain-state.ts'
import type { DkimKeyRecord, DomainRecord, DomainState, RecordCheck } from '../../src/store/records/sender-records.ts'
import { dkimKey, domainRecord } from '../store/store-samples.ts'

const NOW = Date.UTC(2026, 10, 21, 12)
const SETTINGS = { recheck_pending: 5 * MINUTE, recheck_verified: 6 * HOUR, degraded_grace: 72 * HOUR }

const key = (changes: Partial<DkimKeyRecord> = {}): DkimKeyRecord =>
  dkimKey({ selector: 's1', publicKey: 'AAAA', createdAt: NOW - 30 * DAY, ...changes })

const domain = (changes: Partial<DomainRecord> = {}): DomainRecord =>
  domainRecord({ keys: [key()], nextCheckAt: null, ...changes })

type Status = RecordCheck['status']

const check = (purpose: string, status: Status, selector?: string): RecordCheck => ({
  purpose,
  status,
  found: [],
  error: null,
  hint: null,
  checkedAt: NOW,
  ...(selector === undefined ? {} : { selector }),
})

const RIGHT: Status = 'verified'

const checks = (dkim: Status = RIGHT, returnPath: Status = RIGHT, spf: Status = RIGHT): RecordCheck[] => [
  check('dkim', dkim, 's1'),
  check('return_path', returnPath),
  check('spf', spf),
  check('dmarc', 'failed'),
  check('tracking', 'failed'),
]

const after = (before: Partial<DomainRecord>, found: RecordCheck[], now = NOW) =>
  standingAfterCheck(domain(before), found, SETTINGS, now)

t.test('a domain is verified when all required records are right in one check, whatever it was', async (t) => {
  for (const state of ['pending', 'degraded', 'failed'] as const) {
    t.match(
      after({ state, failedChecks: 9, failingSince: 1, degradedAt: 2 }, checks()),
      { state: 'verified', verifiedAt: NOW, failingSince: null, failedChecks: 0, degradedAt: null },
      `${state}; the recommended ones do not count`,
    )
  }
  t.match(after({ state: 'verified', verifiedAt: 5 }, checks()), { state: 'verified', verifiedAt: 5 }, 'and stays so')
  t.match(after({ state: 'suspended' }, checks()), { state: 'suspended', nextCheckAt: null }, 'but for the operator')
  for (const status of ['pending', 'failed', 'temporary_failure'] as const) {
    t.equal(after({}, checks(status)).state, 'pending', `dkim ${status}`)
    t.equal(after({}, checks('verified', status)).state, 'pending', `return path ${status}`)
    t.equal(after({}, checks('verified', 'verified', status)).state, 'pending', `spf ${status}`)
  }
  t.equal(after({}, checks().slice(1)).state, 'pending', 'no key was looked for')
})

t.test('a required record must be wrong three times over six hours before a domain is degraded', async (t) => {
  const failing = (failedChecks: number, failingSince: number) => ({
    state: 'verified' as const,
    failedChecks,
    failingSince,
  })
  t.match(after({ state: 'verified' }, checks('failed')), { state: 'verified', failedChecks: 1, failingSince: NOW })
  t.match(after(failing(1, NOW - 20 * HOUR), checks('failed')), { state: 'verified', failedChecks: 2 }, 'two are few')
  t.match(after(failing(2, NOW - 6 * HOUR + 1), checks('failed')), { state: 'verified', failedChecks: 3 }, 'too soon')
  t.match(after(failing(2, NOW - 6 * HOUR), checks('failed')), { state: 'degraded', degradedAt: NOW })
  t.match(after(failing(2, NOW - 20 * HOUR), checks()), { state: 'verified', failedChecks: 0, failingSince: null })
  t.match(
    after(failing(8, NOW - 20 * HOUR), checks('temporary_failure')),
    { state: 'verified', failedChecks: 8, failingSince: NOW - 20 * HOUR },
    'no answer changes nothing',
  )
  const oneIsWrong = checks('temporary_failure', 'failed')
  t.match(after(failing(2, NOW - 6 * HOUR), oneIsWrong), { state: 'degraded' })
})

t.test('a degraded domain fails after its grace, and only by a wrong answer', async (t) => {
  const degraded = (since: number) => ({ state: 'degraded' as const, degradedAt: since })
  t.match(after(degraded(NOW - 72 * HOUR + 1), checks('failed')), { state: 'degraded' })
  t.match(after(degraded(NOW - 72 * HOUR), checks('failed')), { state: 'failed', degradedAt: NOW - 72 * HOUR })
  t.match(after(degraded(NOW - 99 * HOUR), checks('temporary_failure')), { state: 'degraded' })
  t.match(after({ state: 'failed' }, checks('failed')), { state: 'failed' })
})

t.test('the next check is due by state and age', async (t) => {
  const wait = (before: Partial<DomainRecord>, found = checks('failed')): number | null => {
    const { nextCheckAt } = after(before, found)
    return nextCheckAt === null ? null : nextCheckAt - NOW
  }
  const rows: [Partial<DomainRecord>, number | null][] = [
    [{}, 5 * MINUTE],
    [{ createdAt: NOW - DAY + 1 }, 5 * MINUTE],
    [{ createdAt: NOW - DAY }, HOUR],
    [{ createdAt: NOW - 14 * DAY + 1 }, HOUR],
    [{ createdAt: NOW - 14 * DAY }, DAY],
    [{ state: 'degraded', degradedAt: NOW }, 30 * MINUTE],
    [{ state: 'failed' }, 30 * MINUTE],
    [{ state: 'suspended' }, null],
    [{ createdAt: NOW - DAY, keys: [key(), key({ role: 'next', createdAt: NOW })] }, 5 * MINUTE],
    [{ keys: [key(), key({ role: 'next', createdAt: NOW - 20 * DAY })] }, 5 * MINUTE],
  ]
  for (const [before, expected] of rows) t.equal(wait(before), expected, JSON.stringify(before).slice(0, 60))

  const waitOf = (name: string): number => wait({ name, state: 'verified' }, checks()) ?? 0
  const waits = Array.from({ length: 200 }, (_, index) => waitOf(`d${index}.com`))
  t.ok(
    waits.every((each) => each >= 5.4 * HOUR && each <= 6.6 * HOUR),
    'six hours, ten percent more or less',
  )
  t.ok(new Set(waits).size > 190 && Math.max(...waits) - Math.min(...waits) > HOUR, 'spread')
  const next = key({ role: 'next', createdAt: NOW - HOUR })
  t.equal(wait({ state: 'verified', keys: [key(), next] }, checks()), 5 * MINUTE)
  const retiring = key({ selector: 's0', role: 'retiring', retireAt: NOW + HOUR })
  t.equal(wait({ state: 'verified', keys: [key(), retiring] }, checks()), HOUR, 'when the old key may go')
})

t.test('only the RSA key that signs is required', async (t) => {
  const others = [
    key({ selector: 's2', role: 'next' }),
    key({ selector: 's3', role: 'retiring', retireAt: NOW + DAY }),
    key({ selector: 's4', algorithm: 'ed25519-sha256' }),
  ]
  const found = [...checks(), ...others.map(({ selector }) => check('dkim', 'failed', selector))]
  t.equal(after({ keys: [key(), ...others] }, found).state, 'verified')
  t.equal(after({ keys: others }, found).state, 'pending', 'and it must be there')
})

t.test('a clock that ran ahead and was set back lets no wrong domain send for ever', async (t) => {
  const next = NOW + 365 * DAY
  const wrong = checks('failed')
  const failing = { state: 'verified', failingSince: next, failedChecks: 5 } as const
  const first = after(failing, wrong, NOW)
  t.match(after({ ...failing, ...first }, wrong, NOW + 6 * HOUR), { state: 'degraded', degradedAt: NOW + 6 * HOUR })
  const degraded = { ...first, state: 'degraded', degradedAt: next } as const
  const second = after(degraded, wrong, NOW)
  t.match(after(second, wrong, NOW + 72 * HOUR), { state: 'failed' })
})

t.test('a next key takes over when two checks at least ten minutes apart saw it', async (t) => {
  const active = key()
  const next = key({ selector: 's2', role: 'next' })
  const before = domain({ state: 'verified', verifiedAt: NOW - DAY, keys: [active, next] })
  const roles = (keys: DkimKeyRecord[]): string[] => keys.map((each) => `${each.selector} ${each.role}`)
  const look = (keys: DkimKeyRecord[], status: Status, now: number): DkimKeyRecord[] =>
    keysAfterCheck({ ...before, keys }, [check('dkim', 'verified', 's1'), check('dkim', status, 's2')], now)

  const missing = look([active, next], 'pending', NOW)
  t.equal(missing[1]?.seenAt, null)
  const first = look(missing, 'verified', NOW)
  t.same([roles(first), first[1]?.seenAt], [['s1 active', 's2 next'], NOW])
  t.same(roles(look(first, 'verified', NOW + 10 * MINUTE - 1)), ['s1 active', 's2 next'], 'too soon')
  const gone = look(first, 'failed', NOW + 5 * MINUTE)
  t.same([roles(gone), gone[1]?.seenAt], [['s1 active', 's2 next'], null], 'gone again: the count starts anew')
  const silent = look(first, 'temporary_failure', NOW + 20 * MINUTE)
  t.same([roles(silent), silent[1]?.seenAt], [['s1 active', 's2 next'], NOW], 'no answer is no sight, and no loss')

  const ahead = look(look(missing, 'verified', NOW + 365 * DAY), 'verified', NOW)
  t.same(roles(look(ahead, 'verified', NOW + 10 * MINUTE)), ['s1 retiring', 's2 active'], 'seen by a clock ahead')

  const switched = look(silent, 'verified', NOW + 25 * MINUTE)
  t.same(roles(switched), ['s1 retiring', 's2 active'])
  const retireAt = NOW + 25 * MINUTE + 7 * DAY
  t.equal(switched[0]?.retireAt, retireAt)
  t.same(roles(look(switched, 'verified', retireAt - 1)), ['s1 retiring', 's2 active'])
  t.same(roles(look(switched, 'failed', retireAt)), ['s2 active'], 'gone after its time')
  t.same(
    switched.map((each) => each.publicKey),
    ['AAAA', 'AAAA'],
    'the keys themselves stay',
  )
})

t.test('each algorithm goes its own way', async (t) => {
  const rsa = key()
  const ed25519 = key({ selector: 's2', algorithm: 'ed25519-sha256', role: 'next' })
  const seen = [check('dkim', 'verified', 's1'), check('dkim', 'verified', 's2')]
  const fresh = keysAfterCheck(domain({ keys: [rsa, ed25519] }), seen, NOW)
  t.same(
    fresh.map(({ role }) => role),
    ['active', 'active'],
    'at once where nothing was signed yet',
  )
  const later = keysAfterCheck(domain({ verifiedAt: NOW - DAY, keys: [rsa, ed25519] }), seen, NOW)
  t.same(
    later.map(({ role }) => role),
    ['active', 'next'],
    'else with the wait',
  )

  t.notOk(isRotating([rsa, ed25519]), 'an Ed25519 key that nobody publishes holds up no rotation')
  t.ok(isRotating([rsa, key({ role: 'next' })]))
  t.same(algorithmsToRotate([rsa], false), ['rsa-sha256'])
  t.same(algorithmsToRotate([rsa], true), ['rsa-sha256', 'ed25519-sha256'])
  t.same(algorithmsToRotate([rsa, ed25519], true), ['rsa-sha256'], 'it goes on waiting')
})

t.test('only verified and degraded domains send', async (t) => {
  const states: DomainState[] = ['pending', 'verified', 'degraded', 'failed', 'suspended']
  t.same(
    states.filter((state) => canSend({ state })),
    ['verified', 'degraded'],
  )
})
