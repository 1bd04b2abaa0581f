/**
 * Whatever a DNS says, and however late: a check answers within 10 seconds, says so in a record of a bearable size,
 * holds up no other domain and nobody else. And names that are no domains are refused with a reason.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { recordOf, startDomainWorld, toPublish, type DomainBody, type DomainWorld } from '../support/domain-world.ts'
import { startHostileDns } from '../support/hostile-dns.ts'
import { missingPrograms } from '../support/programs.ts'
import { freePort } from '../support/serve-process.ts'
import type { DnsRecordLine } from '../support/unbound.ts'
import { until } from '../support/until.ts'

const skip = missingPrograms({ unbound: ['unbound'] })
const SECOND = 1_000
/** Ten seconds (http/README.md "Domains"), and time for the rest of the request on a busy machine. */
const MOST_VERIFY_MILLISECONDS = 20_000
const MOST_ANSWER_BYTES = 256 * 1_024
/** Of a server that goes on living: its longest silence meanwhile. */
const MOST_HEALTH_MILLISECONDS = 6_000
const BETWEEN_LOOKS_MILLISECONDS = 20

const TEXT_OF_64_KB = 'v=DKIM1; k=rsa; p='.padEnd(64_000, 'A')
const BINARY = 'v=DKIM1; k=rsa; p=\x00\x01\x1b[31m\xff\xfe\r\n"\\;\x80'

type Zone = (asked: DnsRecordLine[], domain: string) => DnsRecordLine[]

const txt = (name: string, value: string): DnsRecordLine => ({ name, type: 'TXT', value })
/** Every name that is asked for, and the return path as TXT too. */
const namesOf = (asked: DnsRecordLine[]): string[] => [...new Set(asked.map(({ name }) => name))]
const hundred = (make: (index: number) => DnsRecordLine): DnsRecordLine[] =>
  Array.from({ length: 100 }, (_, index) => make(index))

const ZONES: Record<string, Zone> = {
  'huge.test': (asked) => namesOf(asked).map((name) => txt(name, TEXT_OF_64_KB)),
  'hugespf.test': (asked, domain) => [
    ...asked.filter(({ type }) => type !== 'CNAME'),
    txt(`bounces.${domain}`, `v=spf1 ${'ip4:192.0.2.1 '.repeat(4_500)}-all`),
  ],
  'loop.test': (asked) =>
    namesOf(asked).flatMap((name) => [
      { name, type: 'CNAME', value: `x.${name}` },
      { name: `x.${name}`, type: 'CNAME', value: name },
    ]),
  'self.test': (asked) => namesOf(asked).map((name) => ({ name, type: 'CNAME', value: name })),
  'binary.test': (asked) => namesOf(asked).flatMap((name) => [txt(name, BINARY), txt(name, `v=spf1 \x00${BINARY}`)]),
  'hundred.test': (asked, domain) => [
    ...namesOf(asked).flatMap((name) =>
      hundred((index) => txt(name, `v=spf1 ip4:192.0.2.${index} v=DMARC1; p=none; p=x`)),
    ),
    ...hundred((index) => ({ name: `bounces.${domain}`, type: 'MX', value: `${index} mx${index}.${domain}` })),
  ],
  'recursive.test': (asked, domain) => [
    ...asked.filter(({ type }) => type !== 'CNAME'),
    txt(`bounces.${domain}`, `v=spf1 include:bounces.${domain} exists:%{l}.%{o}.${domain} redirect=bounces.${domain}`),
  ],
  'late.test': (asked) => asked,
  'dripping.test': (asked, domain) => [
    ...asked.filter(({ type }) => type !== 'CNAME'),
    ...Array.from({ length: 9 }, (_, index) =>
      txt(index === 0 ? `bounces.${domain}` : `i${index}.${domain}`, `v=spf1 include:i${index + 1}.${domain} -all`),
    ),
  ],
  'liar.test': () => [],
}

const DELAYS: Record<string, number> = { 'late.test': 30 * SECOND, 'dripping.test': 3 * SECOND }

t.test('a check ends in time with a bearable answer, and nobody else waits', { skip }, async (t) => {
  const lies = new Map<string, { owner: string; text: string }[]>()
  const [worldDns, world] = await startHostileWorld(t, lies)
  for (const [domain, zone] of Object.entries(ZONES)) {
    const added = await world.add(domain)
    world.setZone(domain, zone(toPublish(added), domain))
  }
  const victim = await world.add('victim.test')
  const liar = await world.find('liar.test')
  // Asked about the liar, it speaks about the victim: with all that the victim would have to publish.
  const aboutVictim = victim.records
    .filter(({ type }) => type === 'TXT')
    .map(({ name, value }) => ({ owner: name, text: value }))
  for (const { name } of liar.records) lies.set(name, aboutVictim)
  const good = await world.add('good.test')
  world.setZone('good.test', toPublish(good))
  await world.publish()

  const { api, baseUrl, clock, log, parts } = world.appliance
  clock.leap(11 * SECOND)
  let isOver = false
  const health = watchHealth(baseUrl, () => isOver)
  const started = performance.now()
  const over = new Set<string>()
  const names = [...Object.keys(ZONES), 'victim.test']
  const checks = names.map(async (name) => {
    const { status, body } = await api.post(`/domains/${name}/verify`, {})
    over.add(name)
    return { name, status, body, took: performance.now() - started }
  })
  const quick = await api.post('/domains/good.test/verify', {})
  t.match(quick, { status: 200, body: { data: { status: 'verified' } } })
  t.same(
    [...over].filter((name) => name in DELAYS),
    [],
    'a good domain does not wait for those that are late',
  )

  for (const { name, status, body, took } of await Promise.all(checks)) {
    const domain = body['data'] as DomainBody
    t.equal(status, 200, name)
    t.ok(took <= MOST_VERIFY_MILLISECONDS, `${name} took ${Math.round(took)} ms`)
    t.match(domain, { domain: name, status: 'pending', can_send: false }, name)
    t.ok(JSON.stringify(body).length < MOST_ANSWER_BYTES, `${name}: ${JSON.stringify(body).length} bytes`)
    t.ok(
      domain.records.filter(({ required }) => required).some(({ status: found }) => found !== 'verified'),
      name,
    )
    if (name in DELAYS)
      t.ok(
        domain.records.some(({ status: found }) => found === 'temporary_failure'),
        name,
      )
    if (name !== 'late.test')
      t.ok(
        domain.records.every(({ found }) => found.length <= 100),
        name,
      )
  }
  isOver = true
  t.ok((await health) < MOST_HEALTH_MILLISECONDS, `the longest wait for /health was ${Math.round(await health)} ms`)
  t.match(recordOf(await world.find('victim.test'), 'dkim'), { status: 'pending', found: [] }, 'lies change nothing')
  t.not(recordOf(await world.find('liar.test'), 'dkim').status, 'verified', 'nor do they help the liar')

  await t.test('a slow domain holds up no other one in the schedule', async (t) => {
    clock.leap(12 * 3_600 * SECOND)
    const before = (await world.find('good.test')).last_checked_at ?? 0
    let isDueOver = false
    const due = parts.domains.checkDue().then(() => (isDueOver = true))
    const wasChecked = async (): Promise<boolean> => ((await world.find('good.test')).last_checked_at ?? 0) > before
    await until('the good one was checked', wasChecked)
    t.notOk(isDueOver, 'the slow ones were still asked')
    t.match(await world.find('good.test'), { status: 'verified' })
    await worldDns.close()
    await due
    t.match(await world.find('good.test'), { status: 'verified' })
  })
  const shown = await world.appliance.command('domain', 'show', 'binary.test')
  t.match(shown, { code: 0, stdout: /DKIM1/ }, shown.stderr)
  // Nothing but line ends and tabs reaches a terminal unescaped.
  const isControl = (character: string): boolean => character < ' ' || (character >= '\x7f' && character < '\xa0')
  const control = [...shown.stdout].filter((character) => isControl(character) && !'\n\t'.includes(character))
  t.same(control, [], 'no control character of the DNS reaches the terminal')
  for (const line of log) t.doesNotThrow(() => JSON.parse(line) as unknown)
  t.same(
    log.filter((line) => line.includes('"level":"error"')),
    [],
    'nothing is an error of ours',
  )
})

const REFUSED: [string, string][] = [
  ['a scheme', 'https://acme.com'],
  ['a port', 'acme.com:8080'],
  ['a path', 'acme.com/x'],
  ['an address', 'a@acme.com'],
  ['a public suffix', 'co.uk'],
  ['another one', 'com'],
  ['a single label', 'localhost'],
  ['an IP', '192.0.2.1'],
  ['an IPv6', '2001:db8::1'],
  ['one in brackets', '[::1]'],
  ['an octal IP', '0300.0.2.1'],
  ['a wildcard', '*.acme.com'],
  ['an empty label', 'a..acme.com'],
  ['a hyphen in front', '-a.acme.com'],
  ['a space', 'a b.com'],
  ['nothing', ''],
  ['a long label', `${'a'.repeat(64)}.com`],
  ['254 characters', `${'a'.repeat(49)}.`.repeat(5) + 'abcd'],
  ['65,536 characters', `${'a.'.repeat(32_766)}test`],
  ['a zero', 'acme.com\0'],
  ['a line end', 'acme.com\r\nx'],
  ['two dots at its end', 'acme.com..'],
  ['a dot', '.'],
  ['a shell word', '$(id).com'],
  ['an underscore', '_dmarc.acme.com'],
  ['bad punycode', 'xn--a-\u00e9.com'],
  ['full-width letters', '\uff41\uff43.test'],
]

const TAKEN: [string, string, string][] = [
  ['upper case', 'Shop.ACME.Test', 'shop.acme.test'],
  ['a trailing dot', 'dotted.test.', 'dotted.test'],
  ['Unicode', 'B\u00fccher.test', 'xn--bcher-kva.test'],
  ['253 characters', `${'a'.repeat(49)}.`.repeat(4) + 'b'.repeat(48) + '.test', ''],
]

t.test('what is no domain is refused with field and reason; what is one is normalised', { skip }, async (t) => {
  const world = await startDomainWorld(t)
  const { api } = world.appliance
  for (const [what, domain] of REFUSED) {
    const answer = await api.post('/domains', { domain })
    t.match(answer, { status: 422, body: { error: { code: 'invalid_request', details: /^domain: / } } }, what)
    t.ok(JSON.stringify(answer.body).length < 2_048, what)
    // A path that names no single domain, or is longer than a request may be, is none.
    if (domain.length > 1 && domain.length < 300) {
      t.match(await api.get(`/domains/${encodeURIComponent(domain)}`), { status: 404 }, what)
    }
  }
  for (const [what, domain, expected] of TAKEN) {
    const answer = await api.post('/domains', { domain })
    if (expected === '') {
      // Its records would be longer than a name may be.
      t.ok(answer.status === 422 || answer.status === 201, what)
      continue
    }
    t.match(answer, { status: 201, body: { data: { domain: expected } } }, what)
    t.match(await api.post('/domains', { domain: expected }), { status: 200 }, 'there already')
    const found = await api.get(`/domains/${encodeURIComponent(domain)}`)
    t.match(found, { status: 200, body: { data: { domain: expected } } }, what)
  }
})

/** The slow and lying server in front of unbound. */
async function startHostileWorld(
  t: { teardown(clean: () => unknown): void },
  lies: ReadonlyMap<string, { owner: string; text: string }[]>,
): Promise<[{ close(): Promise<void> }, DomainWorld]> {
  const goodPort = await freePort()
  const hostile = await startHostileDns({
    goodPort,
    delayOf: (name) => Object.entries(DELAYS).find(([domain]) => name.endsWith(domain))?.[1],
    lieAbout: (name) => lies.get(name),
  })
  let isClosed = false
  const close = async (): Promise<void> => {
    if (!isClosed) await hostile.close()
    isClosed = true
  }
  t.teardown(close)
  const world = await startDomainWorld(t, { dnsServer: hostile.server, dnsPort: goodPort })
  return [{ close }, world]
}

/** The longest time that the server took to say it is well. */
async function watchHealth(baseUrl: string, isOver: () => boolean): Promise<number> {
  let longest = 0
  while (!isOver()) {
    const asked = performance.now()
    await (await fetch(`${baseUrl}/health`)).arrayBuffer()
    longest = Math.max(longest, performance.now() - asked)
    await sleep(BETWEEN_LOOKS_MILLISECONDS)
  }
  return longest
}
