/**
 * Many messages to one destination are greylisted, and come due together when the host takes everything: as many as
 * the rate of a path lets go at once, and more behind them. The process lives through the wait, or is killed and
 * started meanwhile. Each message arrives within a minute, and none is left `sending`. All limits are the shipped ones.
 */
import t, { type Test } from 'tap'
import { MINUTE, SECOND } from '../../src/base/clock.ts'
import { queueRows, type QueueRow } from '../support/queue-rows.ts'
import { scriptedMx, type ScriptedMx } from '../support/scripted-mx.ts'
import { startSimulatedAppliance, type SimulatedAppliance } from '../support/simulated-appliance.ts'
import { prepareSender, SENDING_DOMAIN, startApplianceZone } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

const RUNS = process.env['TEST_SCALE'] === 'full' ? 25 : 1
const MESSAGES = 200
/** Of real time, from the moment when they come due. */
const DEADLINE = MINUTE
/** A single IP: all of them have to go by one path. */
const ONE_IP = {
  version: 1,
  default_pool: 'default',
  pools: { default: { ips: [{ address: '127.0.0.11', hostname: 'mta1.sternpost.test', warmed: true }] } },
}

t.setTimeout(0)

for (const isKilled of [false, true]) {
  const story = isKilled ? 'greylisted together, killed, and due together' : 'greylisted together, and due together'
  for (let run = 1; run <= RUNS; run += 1) t.test(`${story}, ${run}`, (t) => runStory(t, isKilled))
}

interface Scene {
  host: ScriptedMx
  appliance: SimulatedAppliance
  /** From now on nothing is greylisted any more. */
  takeAll(): void
  rows(): QueueRow[]
}

async function runStory(t: Test, isKilled: boolean): Promise<void> {
  const { host, appliance, takeAll, rows } = await startGreylisted(t)
  takeAll()
  if (isKilled) await appliance.restart({ hasWire: true })
  const startedAt = performance.now()
  comeDue(appliance, rows())
  await until(
    'all are delivered, or the time is up',
    () =>
      performance.now() - startedAt > DEADLINE ||
      (host.messages.length >= MESSAGES && rows().every(({ state }) => state === 'delivered')),
    2 * DEADLINE,
  )

  const seconds = ((performance.now() - startedAt) / SECOND).toFixed(1)
  const arrived = countsOf(host.messages.map(({ to }) => to))
  const states = Object.fromEntries(countsOf(rows().map(({ state }) => state)))
  t.comment(`${arrived.size} of ${MESSAGES} arrived, after ${seconds} s: ${JSON.stringify(states)}`)
  const mayComeTwice = new Set(rows().flatMap((row) => (row.isPossibleDuplicate ? [row.recipient] : [])))
  t.equal(arrived.size, MESSAGES, 'every message arrived')
  t.same(
    [...arrived].filter(([to, count]) => count > (mayComeTwice.has(to) ? 2 : 1)),
    [],
    'and once',
  )
  t.same(states, { delivered: MESSAGES })
}

/** All are greylisted, and wait. */
async function startGreylisted(t: Test): Promise<Scene> {
  let isTaking = false
  const host = await scriptedMx({
    script: { rcpt: () => (isTaking ? '250 2.1.5 ok' : '451 4.7.1 Greylisted, come back later') },
  })
  t.teardown(() => host.close())
  const zone = await startApplianceZone(host.address)
  t.teardown(() => zone.close())
  const appliance = await startSimulatedAppliance({ dnsServer: zone.server, deliveryPort: host.port, pools: ONE_IP })
  t.teardown(() => appliance.remove())
  const api = await prepareSender(appliance, zone)
  const recipients = Array.from({ length: MESSAGES }, (_, index) => ({ to: `reader-${index}@dest.test` }))
  const mail = { from: `shop@${SENDING_DOMAIN}`, subject: 'Order', text: 'On its way', recipients }
  t.equal((await api.post('/email/batch', mail)).status, 200)
  const rows = (): QueueRow[] => queueRows(appliance.dataFolder)
  await until('all are greylisted', () => rows().every(({ state, attempts }) => state === 'waiting' && attempts === 1))
  return {
    host,
    appliance,
    rows,
    takeAll() {
      isTaking = true
    },
  }
}

/**
 * Time passes until a quarter of them is due; the others come due in the order in which they were greylisted, as fast
 * as the rate allows or faster. What is claimed when it is used up cannot go at once.
 */
function comeDue(appliance: SimulatedAppliance, rows: readonly QueueRow[]): void {
  const times = rows.map(({ nextAt }) => nextAt).sort((left, right) => left - right)
  const quarterAt = times[MESSAGES / 4] ?? 0
  // It resolves when nothing is under way, so never while a message is left behind: then the process ends before it.
  appliance.leap(quarterAt - appliance.now()).catch(() => {})
}

function countsOf(words: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return counts
}
