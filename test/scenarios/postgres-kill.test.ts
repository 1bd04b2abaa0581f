/**
 * PostgreSQL is killed under load, again and again: nothing that was answered is lost, what cannot be stored is refused
 * within two seconds, and all goes on by itself. Where the node is killed too while it cannot record what it delivered,
 * that arrives twice, and every such message says so. store/README.md "What a kill may cause".
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startManyDestinations } from '../support/many-destinations.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { randomSource } from '../support/random-source.ts'
import { startSteadyLoad } from '../support/steady-load.ts'
import { until } from '../support/until.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const KILLS = Number(process.env['TEST_KILLS'] ?? (IS_FULL ? 50 : 2))
const LONGEST_ANSWER = 300
const MOST_WAITING = 300
/** In milliseconds; a busy machine takes longer. */
const LONGEST_REFUSAL = IS_FULL ? 2_000 : 20_000
const LONGEST_RETURN = IS_FULL ? 5_000 : 60_000
/** Errors in the log for each kill: each part that asks says so once. */
const MOST_SAID = 15
const DEADLINE = 120_000
/** Of PostgreSQL and the node: each leaves some messages between their final dot and a commit that never comes. */
const KILLS_OF_BOTH = IS_FULL ? 10 : 1
const LEAST_UNANSWERED = 3
const LATE_ANSWER = 1_000

const FIND_MARKED = `select recipient from messages where state = 'sending' and dot_sent = 1`
const COUNT_OPEN = `select count(*) from messages where state in ('waiting', 'sending')`

t.setTimeout(0)

t.test('PostgreSQL is killed under load', { skip: skipWithoutPostgres }, async (t) => {
  const random = randomSource(24)
  const scene = await startScene(t, () => random.integer(LONGEST_ANSWER))
  const { cluster, sink, server, api, domains, load } = scene
  const { processId } = server
  let slowestRefusal = 0
  let slowestReturn = 0
  for (let kill = 1; kill <= KILLS; kill += 1) {
    const before = load.accepted.size
    await until('mail goes out', () => load.accepted.size > before && sink.inFlight() > 0, DEADLINE)
    await sleep(random.integer(1_000))
    const refusals = load.refusals.length
    const killedAt = performance.now()
    await cluster.kill()
    // Whatever may be posted meanwhile: this one is asked for in any case.
    const { status } = await api.post('/email/send', {
      from: 'shop@acme.test',
      to: `kill-${kill}@${domains[0]}`,
      subject: 'Order',
      text: 'On its way',
    })
    t.equal(status, 503)
    slowestRefusal = Math.max(slowestRefusal, performance.now() - killedAt)
    await sleep(random.integer(2_000))
    await cluster.start()
    const backAt = performance.now()
    const acceptedBefore = load.accepted.size
    await until(
      'mail is accepted and goes out',
      () => {
        const since = [...load.accepted.keys()].slice(acceptedBefore)
        return since.some((to) => sink.arrivals.has(to))
      },
      DEADLINE,
    )
    slowestReturn = Math.max(slowestReturn, performance.now() - backAt)
    t.comment(
      `kill ${kill}: refused after ${Math.round(slowestRefusal)} ms at most, ${load.refusals.length - refusals} times; ` +
        `back after ${Math.round(slowestReturn)} ms at most`,
    )
  }
  await load.stop()
  const { accepted, refusals } = load
  const { stored } = await checkArrivals(t, scene)
  t.same(
    stored.map(({ recipient }) => String(recipient)).filter((to) => !accepted.has(to)),
    [],
    'nothing was refused and kept',
  )
  t.same(
    refusals.filter(({ status, retryAfter }) => status !== 503 || retryAfter === null),
    [],
  )
  t.ok(slowestRefusal < LONGEST_REFUSAL, `refused within ${Math.round(slowestRefusal)} ms`)
  t.ok(slowestReturn < LONGEST_RETURN, `accepting and delivering again within ${Math.round(slowestReturn)} ms`)
  t.same([server.exitCode(), server.processId], [null, processId], 'the process has lived on')
  const said = server.log().filter(({ level }) => level === 'error' || level === 'fatal').length
  t.ok(said <= KILLS * MOST_SAID, `${said} lines of trouble in the log`)
  t.equal(await server.stop(), 0)
})

t.test('PostgreSQL is killed, and the node before it could record', { skip: skipWithoutPostgres }, async (t) => {
  const scene = await startScene(t, () => LATE_ANSWER)
  const { cluster, database, sink, server, load } = scene
  const mayArriveTwice = new Set<string>()
  for (let kill = 1; kill <= KILLS_OF_BOTH; kill += 1) {
    const before = sink.arrivals.size
    await until('some wait for an answer', () => sink.arrivals.size >= before + LEAST_UNANSWERED, DEADLINE)
    await cluster.kill()
    // It comes, and nobody can record it.
    await sleep(LATE_ANSWER)
    await server.kill()
    await until('what was on its way has been read', () => sink.connections() === 0)
    await cluster.start()
    const marked = await cluster.query(FIND_MARKED, database)
    const arrived = marked.map(({ recipient }) => String(recipient)).filter((to) => sink.arrivals.has(to))
    for (const to of arrived) mayArriveTwice.add(to)
    t.comment(`kill ${kill}: ${marked.length} with the dot mark, ${arrived.length} of them have arrived`)
    await server.start()
  }
  await load.stop()
  const { twice } = await checkArrivals(t, scene)
  t.ok(twice.length > 0, 'some had arrived before the kill')
  t.same(
    twice.filter((to) => !mayArriveTwice.has(to)),
    [],
    'nothing else arrived twice',
  )
  t.equal(await server.stop(), 0)
})

type Scene = Awaited<ReturnType<typeof startScene>>

/** A server on a cluster of its own, its mail on the way to a sink that takes its time, and clients that post more. */
async function startScene(t: Test, answerDelayMilliseconds: () => number) {
  const cluster = await startPostgres(t)
  const database = await cluster.createDatabase()
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-url-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'url')
  writeFileSync(file, cluster.url(database), { mode: 0o600 })
  const { sink, server, api, key, domains } = await startManyDestinations(t, {
    answerDelayMilliseconds,
    settings: { storage: { engine: 'postgres', url: { file } }, delivery: { uncertain_retry: '1s', threads: 1 } },
  })
  const load = startSteadyLoad(t, {
    baseUrl: server.baseUrl,
    key,
    domains,
    batch: 10,
    clients: 4,
    mayPost: (accepted) => accepted - sink.arrivals.size < MOST_WAITING,
  })
  return { cluster, database, sink, server, api, domains, load }
}

/** All that was answered with 200 arrives and is recorded, and what arrived twice is flagged. */
async function checkArrivals(t: Test, { cluster, database, sink, load: { accepted, refusals } }: Scene) {
  await until('everything has arrived', () => [...accepted.keys()].every((to) => sink.arrivals.has(to)), DEADLINE)
  await until(
    'everything is recorded',
    async () => (await cluster.query(COUNT_OPEN, database))[0]?.['count'] === '0',
    DEADLINE,
  )
  const stored = await cluster.query('select recipient, possible_duplicate as flag from messages', database)
  const twice = [...sink.arrivals].filter(([, count]) => count > 1).map(([to]) => to)
  const flagged = new Set(stored.filter(({ flag }) => Number(flag) === 1).map(({ recipient }) => String(recipient)))
  t.comment(`${accepted.size} answered with 200, ${refusals.length} refused, ${twice.length} arrived twice`)
  t.same(
    twice.filter((to) => !flagged.has(to)),
    [],
    'every duplicate is flagged',
  )
  t.same(
    [...accepted.keys()].filter((to) => !sink.arrivals.has(to)),
    [],
    'nothing is lost',
  )
  return { stored, twice }
}
