/**
 * Two new IPs warm up over simulated days, with more mail than they may send, eight delivery threads, and SIGKILL at
 * random moments: no IP ever exceeds its cap of a day, of an hour, or of a provider. Counted where the mail arrives.
 *
 * Stages 1 to 3 go through real sockets; from there on the wire is replaced, at full size for all 30 stages, with a
 * kill in every simulated hour.
 */
import t, { type Test } from 'tap'
import { DAY, HOUR, MINUTE } from '../../src/base/clock.ts'
import { apiClient, type ApiClient } from '../support/api-client.ts'
import { startNotingSink } from '../support/noting-sink.ts'
import { randomSource, type RandomSource } from '../support/random-source.ts'
import { dayOf, recount } from '../support/recount.ts'
import { startSimulatedAppliance, type SimulatedAppliance } from '../support/simulated-appliance.ts'
import {
  DESTINATIONS,
  PLAIN_PROVIDERS,
  sendBatch,
  startProviderZone,
  UNLIMITED,
  verifySender,
} from '../support/warming-scene.ts'
import { readWireLog, type SeenRecipient } from '../support/wire-log.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const SEED = Number(process.env['TEST_SEED'] ?? Date.now() % 1_000_000)

const IPS = ['127.0.0.11', '127.0.0.12']
/** The first stages of the curve `standard`, as egress/README.md "Curves" has them. */
const CURVE = [
  50, 100, 200, 350, 500, 750, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000, 6_500, 8_000, 10_000, 12_500, 15_000, 18_000,
  22_000, 26_000, 30_000, 35_000, 40_000, 45_000, 50_000, 60_000, 70_000, 80_000, 90_000, 100_000,
]
/**
 * What waits for each destination on one day and the next, as parts of the caps: the cap binds, then the first share.
 */
const WANTED = [
  [0.6, 0.4, 0.1, 0.1, 0.1],
  [0.8, 0.2, 0.2],
]
/** Every so many days the mail comes late, and only the cap of the hour spreads it. */
const LATE_EVERY = 3
const LATE_AT = 15 * HOUR
const LEAST_OF_PROVIDER = 5
const LEAST_OF_HOUR = 5
/** A day that sends less of its cap proves little. */
const LEAST_USED = 0.7
const SOCKET_STAGES = 3

t.setTimeout(IS_FULL ? 4 * HOUR : 600_000)

if (IS_FULL) {
  t.test('stages 1 to 3 over sockets', (t) =>
    warmUp(t, { stages: SOCKET_STAGES, socketStages: SOCKET_STAGES, killEvery: 6 * HOUR }),
  )
  t.test('all 30 stages, with a kill in every hour', (t) => warmUp(t, { stages: 30, socketStages: 0, killEvery: HOUR }))
} else {
  t.test('3 stages, 2 of them over sockets', (t) => warmUp(t, { stages: 3, socketStages: 2, killEvery: 24 * HOUR }))
}

interface Plan {
  stages: number
  /** The first ones, which go through real sockets. */
  socketStages: number
  /** One kill in each such time, at a moment of chance. */
  killEvery: number
}

interface PlannedDay {
  day: number
  ip: string
  stage: number
  limit: number
  /** At the end of the day. */
  granted: number
}

async function warmUp(t: Test, { stages, socketStages, killEvery }: Plan): Promise<void> {
  const random = randomSource(SEED)
  t.comment(`seed ${SEED} (TEST_SEED)`)
  const { appliance, api, seen } = await startScene(t, socketStages > 0)
  for (const ip of IPS) await api.post(`/ips/${ip}/warmup`, { force: true })
  const writer = createWriter(api)
  const pass = createPassing(appliance, random, killEvery)
  const planned: PlannedDay[] = []
  for (let stage = 1; stage <= stages; stage++) {
    if (stage === socketStages + 1 && socketStages > 0) await appliance.restart({ hasWire: false })
    const cap = CURVE[stage - 1] ?? 0
    const isLate = stage % LATE_EVERY === 0
    if (isLate) await pass(LATE_AT, DAY / 8)
    await writer.fill(stage, cap, seen())
    await appliance.leap(0)
    await pass(DAY - MINUTE, longestStep(cap, isLate ? DAY / 3 : DAY))
    planned.push(...(await Promise.all(IPS.map((ip) => plannedDay(api, ip, dayOf(appliance.now()))))))
    if (stage < stages) await appliance.leap(DAY - (appliance.now() % DAY) + random.integer(MINUTE))
  }
  t.same(
    planned.map(({ limit }) => limit),
    CURVE.slice(0, stages).flatMap((cap) => [cap, cap]),
    'a stage a day',
  )
  judge(t, planned, seen())
  t.same(await appliance.complaints(), [], 'nothing went wrong, and nothing waited without a reason')
}

type Passing = (untilTime: number, longest: number) => Promise<void>

/** To a time of the day, in steps of chance; a kill cuts one of them off now and then. */
function createPassing(appliance: SimulatedAppliance, random: RandomSource, killEvery: number): Passing {
  const killWithin = (from: number): number => from + Math.floor(random.next() * killEvery)
  let killAt = killWithin(appliance.now())
  return async (untilTime, longest) => {
    const end = appliance.now() - (appliance.now() % DAY) + untilTime
    while (appliance.now() < end) {
      const step = Math.min(end - appliance.now(), Math.floor(longest / 2) + random.integer(longest / 2))
      if (appliance.now() < killAt) {
        await appliance.leap(step)
        continue
      }
      await appliance.leapIntoKill(step, random.integer(LATEST_KILL))
      killAt = killWithin(appliance.now() - (appliance.now() % killEvery) + killEvery)
    }
  }
}

/** Of real time, after the clock was moved: by then, all that could go has gone. */
const LATEST_KILL = 40

/**
 * Shorter than what may go at once takes at the pace of the day (egress/README.md "Smoothing"), so that steps waste
 * nothing.
 */
function longestStep(cap: number, spreadOver: number): number {
  const burst = Math.min(500, Math.max(5, cap / 50))
  return Math.floor(Math.min(HOUR, 0.8 * (burst - 1) * (spreadOver / cap)))
}

async function plannedDay(api: ApiClient, ip: string, day: number): Promise<PlannedDay> {
  const { body } = await api.get(`/ips/${ip}/warmup`)
  const { warmup } = body['data'] as { warmup: { stage: number; daily_limit: number; sent_today: number } }
  return { day, ip, stage: warmup.stage, limit: warmup.daily_limit, granted: warmup.sent_today }
}

function judge(t: Test, planned: readonly PlannedDay[], seen: readonly SeenRecipient[]): void {
  const counted = recount(seen)
  t.comment('day  ip           stage   planned   allowed      sent   in an hour   by provider')
  for (const { day, ip, stage, limit, granted } of planned) {
    const sent = counted.find((one) => one.day === day && one.source === ip)
    t.ok(sent !== undefined, `${ip} sent on day ${day}`)
    if (sent === undefined) continue
    const hourly = Math.ceil(Math.max(LEAST_OF_HOUR, limit / 8))
    const providers = DESTINATIONS.map(({ domain, share }) => {
      const count = sent.sentTo.get(domain) ?? 0
      const ceiling = Math.min(limit, Math.max(LEAST_OF_PROVIDER, Math.ceil(limit * share)))
      t.ok(count <= ceiling, `day ${day}, ${ip}: ${count} to ${domain}, share ${ceiling}`)
      return `${count}/${ceiling}`
    })
    t.ok(sent.sent <= limit, `day ${day}, ${ip}: ${sent.sent} sent, cap ${limit}`)
    t.ok(sent.sent <= granted, `day ${day}, ${ip}: ${sent.sent} sent, ${granted} granted`)
    t.ok(sent.mostInHour <= hourly, `day ${day}, ${ip}: ${sent.mostInHour} in an hour, cap ${hourly}`)
    t.ok(sent.sent >= LEAST_USED * limit, `day ${day}, ${ip}: ${sent.sent} of ${limit} were sent`)
    const figures = [limit, granted, sent.sent].map((figure) => String(figure).padStart(10)).join('')
    const stageText = String(stage).padStart(5)
    t.comment(`${day} ${ip} ${stageText}${figures}   ${sent.mostInHour}/${hourly}   ${providers.join('  ')}`)
  }
  const days = new Set(planned.map(({ day }) => day))
  t.same(
    counted.filter(({ day, source }) => !days.has(day) || !IPS.includes(source)),
    [],
    'and nothing else',
  )
}

interface Writer {
  /** Adds mail until each destination has as much waiting as it should. */
  fill(stage: number, cap: number, seen: readonly SeenRecipient[]): Promise<void>
}

function createWriter(api: ApiClient): Writer {
  const written = new Map<string, number>()
  return {
    async fill(stage, cap, seen) {
      const arrived = Map.groupBy(seen, ({ recipientDomain }) => recipientDomain)
      const wanted = WANTED[stage % WANTED.length] ?? []
      for (const [index, { domain }] of DESTINATIONS.entries()) {
        const gone = new Set(arrived.get(domain)?.map(({ message }) => message)).size
        const target = gone + Math.ceil(cap * IPS.length * (wanted[index] ?? 0))
        const from = written.get(domain) ?? 0
        const count = Math.max(0, target - from)
        await sendBatch(
          api,
          Array.from({ length: count }, (_, number) => `reader-${from + number}@${domain}`),
        )
        written.set(domain, from + count)
      }
    },
  }
}

interface Scene {
  appliance: SimulatedAppliance
  api: ApiClient
  /** Every RCPT so far, at the sink or where the wire ends. */
  seen(): SeenRecipient[]
}

async function startScene(t: Test, hasWire: boolean): Promise<Scene> {
  const sink = await startNotingSink(() => appliance.now())
  const zone = await startProviderZone()
  const ips = IPS.map((address, index) => ({ address, hostname: `mta${index + 1}.sternpost.test` }))
  const appliance: SimulatedAppliance = await startSimulatedAppliance({
    hasWire,
    dnsServer: zone.server,
    deliveryPort: sink.port,
    pools: { version: 1, default_pool: 'default', pools: { default: { ips, overflow: 'defer', max_defer: '60h' } } },
    settings: { api: UNLIMITED, delivery: { threads: 8, uncertain_retry: '5m' } },
    files: PLAIN_PROVIDERS,
  })
  t.teardown(async () => {
    await appliance.remove()
    await sink.close()
    await zone.close()
  })
  const api = apiClient(appliance.baseUrl, await appliance.createKey())
  await verifySender(api, zone)
  return {
    appliance,
    api,
    seen: () => [
      ...sink.tries.map(({ at, source, recipient }) => ({
        at,
        source,
        recipientDomain: recipient.slice(recipient.indexOf('@') + 1),
        message: recipient,
      })),
      ...readWireLog(appliance.dataFolder),
    ],
  }
}
