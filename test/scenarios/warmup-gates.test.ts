/**
 * What receivers say moves a warmup: a day of deferrals holds the stage, or takes stages away; a block suspends that IP
 * at that provider alone and pauses the IP. Both mend by themselves when the receiver behaves again.
 */
import t, { type Test } from 'tap'
import { HOUR, MINUTE } from '../../src/base/clock.ts'
import { DESTINATIONS, sendBatch, startWarmingScene, type WarmingScene } from '../support/warming-scene.ts'

const [FIRST, SECOND] = ['127.0.0.11', '127.0.0.12'] as const
const STAGE = 6
/** egress/README.md "Gates": greylisting does not count, what speaks of reputation does. */
const GREYLISTED = '451 4.7.1 Greylisted, please come back in 5 minutes'
const TOO_MUCH = '451 4.7.0 Daily quota exceeded'
/** The example of the rule `google-detected` in config/providers.yaml: five within an hour suspend for one hour. */
const BLOCKED = '550 5.7.1 Our system has detected that this message is likely unsolicited mail.'
/** Companies: none of them has more than its share, nor rules of its own. */
const COMPANIES = DESTINATIONS.filter(({ isp }) => isp.endsWith('.test')).map(({ domain }) => domain)

t.setTimeout(600_000)

t.test('gates of a warmup', async (t) => {
  const ips = [FIRST, SECOND].map((address, index) => ({ address, hostname: `mta${index + 1}.sternpost.test` }))
  const scene = await startWarmingScene(t, { default: { ips, overflow: 'defer', max_defer: '60h' } })
  for (const ip of [FIRST, SECOND]) await scene.api.post(`/ips/${ip}/warmup`, { stage: STAGE, force: true })
  await t.test('40 % deferred: the stage holds, or falls when all of it speaks of reputation', (t) => defers(t, scene))
  await t.test('a block: this IP at this provider alone, and its warmup pauses', (t) => blocks(t, scene))
})

function readers(name: string, count: number, domains: readonly string[]): string[] {
  return Array.from({ length: count }, (_, index) => `${name}-${index}@${domains[index % domains.length]}`)
}

/** The number in the name of a recipient. */
function numberOf(recipient: string): number {
  return Number(/\d+/.exec(recipient)?.[0])
}

async function defers(t: Test, { api, sink, passDay, warmupOf }: WarmingScene): Promise<void> {
  const seen = new Set<string>()
  sink.answerRecipients((recipient, source) => {
    const isFirst = !seen.has(recipient)
    seen.add(recipient)
    // Two of five.
    const part = numberOf(recipient) % 5
    if (!isFirst || part > 1) return undefined
    return source === FIRST && part === 0 ? GREYLISTED : TOO_MUCH
  })
  await sendBatch(api, readers('deferred', 1_000, COMPANIES))
  await passDay(20 * MINUTE)
  for (const ip of [FIRST, SECOND]) {
    const first = sink.tries.filter(
      ({ source, reply }, index) =>
        source === ip &&
        reply !== '' &&
        sink.tries.findIndex(({ recipient }) => recipient === sink.tries[index]?.recipient) === index,
    )
    const deferred = first.filter(({ reply }) => reply.startsWith('4')).length / first.length
    t.ok(deferred > 0.35 && deferred < 0.45, `${ip}: ${Math.round(deferred * 100)} % of ${first.length} were deferred`)
  }
  t.match(await warmupOf(FIRST), { stage: STAGE, hold_reason: /^deferral: / })
  t.match(await warmupOf(SECOND), { stage: STAGE - 2, hold_reason: /^deferral: / }, 'above 30 %')

  sink.answerRecipients(() => undefined)
  await sendBatch(api, readers('taken', 700, COMPANIES))
  await passDay(20 * MINUTE)
  t.match(await warmupOf(FIRST), { stage: STAGE + 1, hold_reason: null }, 'a healthy day')
  t.match(await warmupOf(SECOND), { stage: STAGE - 1, hold_reason: null })
}

async function blocks(t: Test, { api, sink, server, pass, passDay, warmupOf }: WarmingScene): Promise<void> {
  const since = server.clock.now()
  const countFrom = (ip: string, domain: string, from = since): number =>
    sink.tries.filter(({ at, source, recipient }) => at >= from && source === ip && recipient.endsWith(domain)).length
  sink.answerRecipients((recipient, source) =>
    source === FIRST && recipient.endsWith('@google-user.test') ? BLOCKED : undefined,
  )
  await sendBatch(api, readers('blocked', 60, ['google-user.test']))
  await pass(1)
  t.equal((await warmupOf(FIRST)).status, 'paused')
  t.equal((await warmupOf(SECOND)).status, 'warming')
  t.same(await suspensions(server), [`${FIRST} google`])
  const refused = countFrom(FIRST, 'google-user.test')

  await sendBatch(api, readers('other', 60, [...COMPANIES, 'google-user.test']))
  await pass(3 * HOUR, 15 * MINUTE)
  t.equal(countFrom(FIRST, 'google-user.test'), refused, 'nothing goes there from the blocked IP')
  t.equal(countFrom(FIRST, 'company.test'), 0, 'and no first attempts elsewhere while it is paused')
  t.ok(countFrom(SECOND, 'google-user.test') > 0, 'the other IP goes on at this provider')
  t.ok(countFrom(SECOND, 'company.test') > 0, 'and at others')

  sink.answerRecipients(() => undefined)
  await pass(HOUR + MINUTE, 10 * MINUTE)
  t.equal((await warmupOf(FIRST)).status, 'warming', 'four hours later')
  const resumed = server.clock.now()
  await sendBatch(api, readers('again', 90, ['google-user.test', 'company.test']))
  await pass(8 * HOUR, 10 * MINUTE)
  t.ok(countFrom(FIRST, 'google-user.test', resumed) > 3, 'more than probes leave again')
  t.ok(countFrom(FIRST, 'company.test', resumed) > 0)
  t.same(await suspensions(server), [])
  await passDay(HOUR)
  t.match(await warmupOf(FIRST), { status: 'warming', stage: STAGE + 1, hold_reason: /^(pause|delivery)/ })
}

/** IP and route. */
async function suspensions({ command }: WarmingScene['server']): Promise<string[]> {
  const { stdout } = await command('path', 'list', '--json')
  const answer: unknown = JSON.parse(stdout)
  const paths = (Array.isArray(answer) ? answer : (answer as { data: unknown[] }).data) as Path[]
  return paths.filter(({ status }) => status === 'suspended').map(({ ip, route }) => `${ip} ${route}`)
}

interface Path {
  ip: string
  route: string
  status: string
}
