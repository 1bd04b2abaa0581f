/**
 * npm run soak -- --minutes 60: a server under half of the machine's load among hostile clients and receivers, changes,
 * restarts and kills, and at the end an account of every message that was answered.
 *
 *   --minutes N   so long the load goes on (60); then all of it has up to 15 minutes to end
 *   --share N     share of the time of all cores, server and clients together (0.5)
 *   --rate N      messages a second, at most (100)
 *   --seed N      of the random numbers (1); times differ all the same
 *
 * Must hold: each message answered with 200 or 250 ends exactly once; what was delivered arrived exactly once, unless it
 * is flagged `uncertain`; nothing else arrived; each event reached the webhook endpoint; nothing was answered with 5xx
 * but 503; memory and database are flat (`growth.ts` has the rule). A line each minute, a summary as JSON at the end;
 * exit 1 when something did not hold, 2 for options that cannot be read.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { randomSource } from '../../test/support/random-source.ts'
import { startChanges } from './changes.ts'
import { judgedStretch, judgeGrowth, look, type Look } from './growth.ts'
import { startHostileClients } from './hostile-clients.ts'
import { startLoad, type Load } from './load.ts'
import { pendingPosts, startScene, untoldEvents, type SoakScene } from './scene.ts'
import { SIDE_CHECKS } from './side-checks.ts'

const MINUTE = 60_000
const LONGEST_END = 15 * MINUTE
const LOOK_EVERY = 2_000
const MEBIBYTE = 2 ** 20
const MOST_TOLD = 50
const FAULT_STATUS = /^http (?:4(?!29)|50[^3])|^smtp [5]/

interface Options {
  minutes: number
  share: number
  rate: number
  seed: number
}

function readOptions(): Options {
  try {
    const text = { type: 'string' } as const
    const { values } = parseArgs({ options: { minutes: text, share: text, rate: text, seed: text } })
    const { minutes = '60', share = '0.5', rate = '100', seed = '1' } = values
    const options = { minutes: Number(minutes), share: Number(share), rate: Number(rate), seed: Number(seed) }
    if (Object.values(options).some((value) => !(value > 0))) throw new Error('every option is a number above 0')
    return options
  } catch (thrown) {
    console.error(`soak: ${thrown instanceof Error ? thrown.message : thrown}`)
    process.exit(2)
  }
}

async function soak(scene: SoakScene, options: Options): Promise<{ faults: string[]; summary: object }> {
  const random = randomSource(options.seed)
  const { from, to } = judgedStretch(options.minutes)
  const startedAt = performance.now()
  const minutesSince = (): number => (performance.now() - startedAt) / MINUTE
  const load = startLoad(scene, { random, share: options.share, mostRate: options.rate })
  const hostile = startHostileClients(scene, random)
  // A server needs a while behind its last start until its memory says anything.
  const mayRestart = (): boolean =>
    minutesSince() < from / 2 || (minutesSince() > to && minutesSince() < options.minutes - 0.5)
  const changes = startChanges(scene, { random, mayRestart })
  const looks: Look[] = []
  const faults: string[] = []
  for (let minute = 1; minute <= options.minutes; minute++) {
    await sleep(Math.max(0, startedAt + minute * MINUTE - performance.now()))
    while (changes.isDown()) await sleep(LOOK_EVERY / 10)
    for (const { name, run } of SIDE_CHECKS) {
      const found = await run(scene).catch((thrown: unknown) => (changes.isDown() ? [] : [String(thrown)]))
      faults.push(...found.map((text) => `${name}, minute ${minute}: ${text}`))
    }
    looks.push(await look(scene, minute))
    tell(scene, load, looks)
  }
  await Promise.all([load.stop(), hostile.stop(), changes.stop()])
  await ended(scene)
  const untold = untoldEvents(scene)
  const waitingPosts = pendingPosts(scene)
  const status = await scene.server.stop()
  const growth = judgeGrowth(looks, options.minutes)
  faults.push(
    ...scene.ledger.judge(scene.server.databaseFolder),
    ...untold.map((id) => `${id} was not told to the endpoint`),
    ...hostile.faults,
    ...[...load.answers].filter(([name]) => FAULT_STATUS.test(name)).map(([name, count]) => `${count} times ${name}`),
    ...(growth?.faults ?? []),
    ...(status === 0 ? [] : [`the last stop ended with ${status}`]),
  )
  const copies = [...scene.ledger.arrived.values()].reduce((sum, count) => sum + count, 0)
  const summary = {
    ...options,
    accepted: scene.ledger.accepted.size,
    arrived: scene.ledger.arrived.size,
    second_copies: copies - scene.ledger.arrived.size,
    events: scene.endpoint.events.size,
    posts: scene.endpoint.posts(),
    waiting_posts: waitingPosts,
    answers: Object.fromEntries(load.answers),
    hostile: Object.fromEntries(hostile.answers),
    changes: Object.fromEntries(changes.made),
    growth: growth ?? 'too short to say',
  }
  return { faults, summary }
}

function tell({ ledger, endpoint }: SoakScene, load: Load, looks: readonly Look[]): void {
  const now = looks.at(-1)
  const before = looks.at(-2)
  if (now === undefined) return
  const perHour = (name: 'memory' | 'database'): string =>
    `${(now[name] / MEBIBYTE).toFixed(1)} MiB (${before === undefined ? 0 : Math.round(((now[name] - before[name]) * 60) / MEBIBYTE)} MiB/h)`
  console.log(
    `minute ${now.minute}: ${ledger.accepted.size} accepted, ${ledger.arrived.size} arrived, ` +
      `${endpoint.events.size} events told, ${load.rate().toFixed(0)} messages/s; ` +
      `memory ${perHour('memory')}, in use ${now.inUse.map((bytes) => Math.round(bytes / MEBIBYTE)).join(' + ')} MiB, ` +
      `database ${perHour('database')}`,
  )
}

/** All messages are final, and all events told; or the time for it is over. */
async function ended(scene: SoakScene): Promise<void> {
  const endsAt = performance.now() + LONGEST_END
  for (let look = 1; performance.now() < endsAt; look++) {
    const open = scene.ledger.unfinished(scene.server.databaseFolder).length
    const pending = pendingPosts(scene)
    if (open + pending === 0) return
    if (look % 15 === 0) console.log(`ending: ${open} messages and ${pending} posts are left`)
    await sleep(LOOK_EVERY)
  }
}

const options = readOptions()
const scene = await startScene(randomSource(options.seed))
try {
  const { faults, summary } = await soak(scene, options)
  for (const text of faults.slice(0, MOST_TOLD)) console.error(text)
  console.log(JSON.stringify({ ...summary, violations: faults.length }, null, 2))
  process.exitCode = faults.length === 0 ? 0 : 1
} finally {
  await scene.close()
}
