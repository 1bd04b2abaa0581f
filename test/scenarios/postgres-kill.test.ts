/**
 * PostgreSQL is killed under load, again and again: nothing that was answered is lost, what cannot be stored is refused
 * within two seconds, and all goes on by itself. store/README.md "A server that does not answer".
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { startManyDestinations } from '../support/many-destinations.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { randomSource } from '../support/random-source.ts'
import { startSteadyLoad } from '../support/steady-load.ts'
import { until } from '../support/until.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const KILLS = Number(process.env['TEST_KILLS'] ?? (IS_FULL ? 50 : 3))
const LONGEST_ANSWER = 300
const MOST_WAITING = 300
const LONGEST_REFUSAL = 2_000
const LONGEST_RETURN = 5_000
/** Errors in the log for each kill: each part that asks says so once. */
const MOST_SAID = 15
const DEADLINE = 120_000

t.setTimeout(0)

t.test('PostgreSQL is killed under load', { skip: skipWithoutPostgres }, async (t) => {
  const random = randomSource(24)
  const cluster = await startPostgres(t)
  const database = await cluster.createDatabase()
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-url-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const file = join(folder, 'url')
  writeFileSync(file, cluster.url(database), { mode: 0o600 })
  const { sink, server, api, key, domains } = await startManyDestinations(t, {
    answerDelayMilliseconds: () => random.integer(LONGEST_ANSWER),
    settings: { storage: { engine: 'postgres', url: { file } }, delivery: { uncertain_retry: '1s', threads: 1 } },
  })
  const { processId } = server
  const load = startSteadyLoad(t, {
    baseUrl: server.baseUrl,
    key,
    domains,
    batch: 10,
    clients: 4,
    mayPost: (accepted) => accepted - sink.arrivals.size < MOST_WAITING,
  })
  t.teardown(() => load.stop())
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
  const counts = async (): Promise<Record<string, number>> => {
    const rows = await cluster.query('select state, count(*) as count from messages group by state', database)
    return Object.fromEntries(rows.map(({ state, count }) => [String(state), Number(count)]))
  }
  await until('everything has arrived', () => [...accepted.keys()].every((to) => sink.arrivals.has(to)), DEADLINE)
  await until(
    'everything is recorded',
    async () => {
      const { waiting = 0, sending = 0 } = await counts()
      return waiting + sending === 0
    },
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
