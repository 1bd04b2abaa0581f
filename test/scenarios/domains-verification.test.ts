/**
 * The life of a sending domain against a real DNS server: pending, verified, degraded, failed and back; what a broken
 * DNS must not change; and for each slip that people make, the sentence that tells them.
 */
import t from 'tap'
import {
  recordOf,
  startDomainWorld,
  toPublish,
  type DomainBody,
  type DomainWorld,
  type RecordView,
} from '../support/domain-world.ts'
import { missingPrograms } from '../support/programs.ts'
import type { DnsRecordLine } from '../support/unbound.ts'
import { until } from '../support/until.ts'
import { webhookReceiver } from '../support/webhook-receiver.ts'

const SECOND = 1_000
const HOUR = 3_600 * SECOND
const DAY = 24 * HOUR

const skip = missingPrograms({ unbound: ['unbound'] })
/** So that a silent server costs the test little. */
const QUICK_DNS = { dns: { timeout: '1s', tries: 1 } }

t.test(
  'pending, verified, degraded, failed and back: by what the DNS says, at the times of the contract',
  { skip },
  async (t) => {
    const world = await startDomainWorld(t, { settings: QUICK_DNS })
    const { api, clock } = world.appliance
    const told = await webhookReceiver()
    t.teardown(() => told.close())
    const notTold = await webhookReceiver()
    t.teardown(() => notTold.close())
    await api.post('/webhooks', { url: told.url, events: ['domain.verified', 'domain.degraded'] })
    await api.post('/webhooks', { url: notTold.url })
    const events = (): unknown[] =>
      told.requests.map(({ body }) => {
        const { event, data } = JSON.parse(body.toString()) as { event: string; data: { domain: string } }
        return `${event} ${data.domain}`
      })
    const send = async (): Promise<number> =>
      (await api.post('/email/send', { to: 'a@dest.test', from: 'a@acme.test', subject: 'x', text: 'x' })).status

    const added = await world.add('acme.test')
    t.match(added, { status: 'pending', verified: false, can_send: false, verified_at: null })
    const early = await world.verify('acme.test')
    t.match(early, { status: 'pending', can_send: false })
    t.same(statuses(early, true), ['pending'], 'nothing was ever seen')
    t.equal(await send(), 403)

    world.setZone(
      'acme.test',
      toPublish(added).filter(({ type }) => type !== 'CNAME'),
    )
    await world.publish()
    const half = await world.nextCheck('acme.test')
    t.match(half, { status: 'pending', can_send: false })
    t.match([recordOf(half, 'dkim').status, recordOf(half, 'return_path').status], ['verified', 'pending'])

    world.setZone('acme.test', toPublish(added))
    await world.publish()
    const verified = await world.nextCheck('acme.test')
    t.match(verified, { status: 'verified', verified: true, can_send: true, verified_at: Number })
    t.same(statuses(verified), ['verified'], 'all five records')
    t.same(recordOf(verified, 'spf').evaluated, [
      { ip: '127.0.0.11', result: 'pass' },
      { ip: '127.0.0.12', result: 'pass' },
    ])
    const wait = secondsToNext(verified)
    t.ok(wait >= 5.4 * 3_600 && wait <= 6.6 * 3_600, `the next check is in 6 h with jitter: ${wait} s`)
    await until('the event', () => events().length === 1)
    t.same(events(), ['domain.verified acme.test'])
    t.match((await api.get('/domains')).body['data'], [{ domain: 'acme.test' }], 'listed')
    t.equal(await send(), 200)

    await t.test('SERVFAIL and silence for days change nothing', async (t) => {
      for (const trouble of [
        { servfail: ['acme.test'] },
        { servfail: ['mail.sternpost.test'] },
        { silent: ['acme.test', 'mail.sternpost.test'] },
      ]) {
        world.setTrouble(trouble)
        await world.publish()
        const start = clock.now()
        // Each silence takes real time.
        const days = trouble.silent === undefined ? 4 : 2
        while (clock.now() - start < days * DAY) {
          const seen = await world.nextCheck('acme.test')
          t.match(seen, { status: 'verified', can_send: true }, JSON.stringify(trouble))
          t.notOk(
            statuses(seen).some((status) => status === 'failed' || status === 'pending'),
            'none is called wrong',
          )
          clock.leap(12 * HOUR)
        }
      }
      world.setTrouble({})
      await world.publish()
    })

    t.same(statuses(await world.nextCheck('acme.test')), ['verified'])
    const withoutKey = toPublish(added).filter(({ name }) => !name.includes('_domainkey'))
    world.setZone('acme.test', withoutKey)
    await world.publish()
    const removedAt = clock.now()
    const { checks, seen: degraded } = await checkUntil(world, 'degraded')
    t.match(degraded, { status: 'degraded', verified: true, can_send: true })
    t.match(recordOf(degraded, 'dkim'), { status: 'failed', error: /no TXT record/ })
    t.ok(checks >= 3, `${checks} checks found it missing`)
    t.ok(clock.now() - removedAt >= 6 * HOUR, 'over at least 6 h')
    t.ok(secondsToNext(degraded) <= 30 * 60, 'looked at every 30 minutes now')
    await until('the event', () => events().length === 2)
    t.equal(events()[1], 'domain.degraded acme.test')
    t.equal(await send(), 200, 'it still sends')

    world.setZone('acme.test', toPublish(added))
    await world.publish()
    t.match(await world.nextCheck('acme.test'), { status: 'verified', can_send: true }, 'back by itself')

    world.setZone('acme.test', withoutKey)
    await world.publish()
    await checkUntil(world, 'degraded')
    clock.leap(71 * HOUR)
    t.match(await world.nextCheck('acme.test'), { status: 'degraded', can_send: true }, 'not yet')
    world.setTrouble({ servfail: ['acme.test'] })
    await world.publish()
    clock.leap(2 * HOUR)
    t.match(await world.nextCheck('acme.test'), { can_send: true }, 'a check without an answer takes nothing away')
    world.setTrouble({})
    await world.publish()
    t.match(await world.nextCheck('acme.test'), { status: 'failed', verified: false, can_send: false })
    t.equal(await send(), 403)
    t.same((await api.get('/domains')).body['data'], [], 'not among the verified ones')
    t.match((await api.get('/domains?status=failed')).body['data'], [{ domain: 'acme.test' }])

    world.setZone('acme.test', toPublish(added))
    await world.publish()
    t.match(await world.nextCheck('acme.test'), { status: 'verified', can_send: true }, 'back by itself from failed')
    t.equal(await send(), 200)
    await until('the last event', () => events().length >= 5 && events().at(-1) === 'domain.verified acme.test')
    t.same(
      notTold.requests.filter(({ body }) => body.includes('domain.')),
      [],
      'nobody is told who did not ask',
    )
  },
)

t.test('a domain that nobody publishes is looked at less and less often', { skip }, async (t) => {
  const world = await startDomainWorld(t, { settings: QUICK_DNS })
  await world.add('idle.test')
  t.equal(secondsToNext(await world.nextCheck('idle.test')), 300)
  world.appliance.clock.leap(25 * HOUR)
  t.equal(secondsToNext(await world.nextCheck('idle.test')), 3_600)
  world.appliance.clock.leap(14 * DAY)
  t.equal(secondsToNext(await world.nextCheck('idle.test')), 86_400)
  world.setTrouble({ servfail: ['idle.test'] })
  await world.publish()
  t.match(await world.nextCheck('idle.test'), { status: 'pending' })
})

interface Slip {
  domain: string
  /** What its owner did in place of what was asked for. */
  publish: (asked: DnsRecordLine[], domain: DomainBody) => DnsRecordLine[]
  purpose: string
  hint: RegExp
}

/** The record at `name` has another value. */
function replaced(asked: DnsRecordLine[], part: string, change: (value: string) => string): DnsRecordLine[] {
  return asked.map((line) => (line.name.includes(part) ? { ...line, value: change(line.value) } : line))
}

/** Own records at the return path in place of the CNAME. */
function ownReturnPath(asked: DnsRecordLine[], ...spf: string[]): DnsRecordLine[] {
  const name = asked.find(({ name }) => name.startsWith('bounces.'))?.name ?? ''
  return [
    ...asked.filter((line) => line.name !== name),
    { name, type: 'MX', value: '10 mail.sternpost.test' },
    ...spf.map((value) => ({ name, type: 'TXT' as const, value })),
  ]
}

const OURS = 'include:spf.mail.sternpost.test'
const MANY_INCLUDES = Array.from({ length: 11 }, (_, index) => `i${index}.lookups.test`)

const SLIPS: Slip[] = [
  {
    domain: 'doubled.test',
    purpose: 'dkim',
    hint: /_domainkey\.doubled\.test\.doubled\.test/,
    publish: (asked) => asked.map((line) => ({ ...line, name: `${line.name}.doubled.test` })),
  },
  {
    domain: 'quoted.test',
    purpose: 'dkim',
    hint: /quot/i,
    publish: (asked) => replaced(asked, '_domainkey', (value) => `"${value}"`),
  },
  {
    domain: 'twospf.test',
    purpose: 'spf',
    hint: /(two|2|one|several|single|merge).*(SPF|record)/i,
    publish: (asked) => ownReturnPath(asked, `v=spf1 ${OURS} -all`, 'v=spf1 ip4:192.0.2.1 -all'),
  },
  {
    domain: 'lookups.test',
    purpose: 'spf',
    hint: /lookups/i,
    publish: (asked) => [
      ...ownReturnPath(asked, ['v=spf1', ...MANY_INCLUDES.map((name) => `include:${name}`), `${OURS} -all`].join(' ')),
      ...MANY_INCLUDES.map((name) => ({ name, type: 'TXT' as const, value: 'v=spf1 ip4:192.0.2.1 -all' })),
    ],
  },
  {
    domain: 'cut.test',
    purpose: 'dkim',
    hint: /255/,
    publish: (asked) => replaced(asked, '_domainkey', (value) => value.slice(0, 255)),
  },
  {
    domain: 'proxied.test',
    purpose: 'return_path',
    hint: /prox/i,
    publish: (asked) =>
      asked.map((line) => (line.type === 'CNAME' ? { ...line, type: 'A', value: '127.0.0.9' } : line)),
  },
  {
    domain: 'elsewhere.test',
    purpose: 'return_path',
    hint: /rp\.mail\.sternpost\.test/,
    publish: (asked) => [
      ...asked.map((line) => (line.name.startsWith('bounces.') ? { ...line, value: 'edge.cdn.test' } : line)),
      { name: 'edge.cdn.test', type: 'A', value: '127.0.0.9' },
    ],
  },
  {
    domain: 'wildcard.test',
    purpose: 'dkim',
    hint: /wildcard|\*/i,
    publish: () => [{ name: '*.wildcard.test', type: 'TXT', value: 'v=spf1 -all' }],
  },
]

t.test('each slip has a sentence that names it, and none when all is right', { skip }, async (t) => {
  const world = await startDomainWorld(t, { settings: QUICK_DNS })
  for (const { domain, publish } of SLIPS) {
    const added = await world.add(domain)
    world.setZone(domain, publish(toPublish(added), added))
  }
  world.setZone('older.test', toPublish(await olderKeyPublished(world)))
  const right = await world.add('right.test')
  // Spaces, tag order, split strings and a last semicolon do not matter.
  world.setZone(
    'right.test',
    replaced(toPublish(right), '_domainkey', (value) => {
      const key = value.slice(value.indexOf('p='))
      return `v=DKIM1;  ${key.slice(0, 90)} ${key.slice(90)} ; k=rsa;`
    }),
  )
  await world.publish()

  for (const { domain, purpose, hint } of [
    ...SLIPS,
    { domain: 'older.test', purpose: 'dkim', hint: /(old|earlier|former|previous|replaced)/i },
  ]) {
    const seen = await world.verify(domain)
    t.match(seen, { status: 'pending', verified: false, can_send: false }, domain)
    const record: RecordView = recordOf(seen, purpose)
    t.match(record.hint ?? '', hint, `${domain}: ${record.error ?? ''} | ${record.hint ?? ''}`)
    t.ok(record.error, `${domain} has an error`)
  }
  const seen = await world.verify('right.test')
  t.match(seen, { status: 'verified' }, 'text that means the same')
  t.same(new Set(seen.records.map(({ hint }) => hint)), new Set([null]))
})

/** Removed and added anew, while the DNS still has the first key, now at the new selector. */
async function olderKeyPublished(world: DomainWorld): Promise<DomainBody> {
  const first = await world.add('older.test', { dkim_selector: 'first' })
  await world.appliance.api.delete('/domains/older.test')
  const again = await world.add('older.test', { dkim_selector: 'second' })
  const { value } = recordOf(first, 'dkim')
  const withOldKey = again.records.map((record) => (record.purpose === 'dkim' ? { ...record, value } : record))
  return { ...again, records: withOldKey }
}

async function checkUntil(world: DomainWorld, status: string): Promise<{ checks: number; seen: DomainBody }> {
  for (let checks = 1; checks <= 20; checks += 1) {
    const seen = await world.nextCheck('acme.test')
    if (seen.status === status) return { checks, seen }
    if (seen.status !== 'verified') throw new Error(`it is ${seen.status}`)
  }
  throw new Error(`not ${status} after 20 checks`)
}

function statuses({ records }: DomainBody, isRequiredOnly = false): string[] {
  const wanted = records.filter(({ required }) => required || !isRequiredOnly)
  return [...new Set(wanted.map(({ status }) => status))]
}

function secondsToNext({ next_check_at: next, last_checked_at: last }: DomainBody): number {
  return next - (last ?? 0)
}
