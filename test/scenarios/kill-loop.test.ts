/**
 * kill -9 under load, again and again: of all that was answered with 200 nothing is lost; what arrives twice was
 * between its final dot and the commit, and says so. Delivery is at least once (RFC 1047). store/README.md "What a kill
 * may cause".
 */
import t, { type Test } from 'tap'
import { startManyDestinations, type ManyDestinations } from '../support/many-destinations.ts'
import { hasEnded, integrityOf, queueRows, stateCounts } from '../support/queue-rows.ts'
import { randomSource } from '../support/random-source.ts'
import { startSteadyLoad } from '../support/steady-load.ts'
import { until } from '../support/until.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const KILLS = Number(process.env['TEST_KILLS'] ?? 0)
const DEADLINE = 300_000

t.setTimeout(0)

interface Scene {
  kills: number
  /** Messages of a connection that a kill may leave in doubt. */
  inFlight: number
  destinations: number
  /** Of transactions: with fewer at the kill the cycle proves nothing, and is repeated. */
  leastUnderWay: number
  /** In milliseconds: so that a kill meets every moment of a transaction. */
  longestAnswer: number
  /** The load waits while so many have not arrived. */
  mostWaiting: number
  /** A kill comes when up to so many have arrived since the start. */
  latestKill: number
}

const ONE_BY_ONE: Scene = {
  kills: KILLS || (IS_FULL ? 200 : 4),
  inFlight: 1,
  destinations: 30,
  leastUnderWay: 50,
  longestAnswer: 500,
  mostWaiting: 600,
  latestKill: 200,
}
/** Fewer connections, which live long enough to have flights. */
const IN_FLIGHTS: Scene = {
  kills: KILLS || (IS_FULL ? 200 : 2),
  inFlight: 8,
  destinations: 4,
  leastUnderWay: 8,
  longestAnswer: 80,
  mostWaiting: 800,
  latestKill: IS_FULL ? 400 : 150,
}

t.test('kill -9 under load loses nothing, and every duplicate says so', (t) => killAgainAndAgain(t, ONE_BY_ONE))

t.test('nor with eight messages of each connection in flight', (t) => killAgainAndAgain(t, IN_FLIGHTS))

async function killAgainAndAgain(t: Test, scene: Scene): Promise<void> {
  const { kills, inFlight } = scene
  const random = randomSource(1)
  const { sink, server, key, domains, api } = await startManyDestinations(t, {
    answerDelayMilliseconds: () => random.integer(scene.longestAnswer),
    hasChunking: inFlight > 1,
    inFlight,
    destinations: scene.destinations,
    // One thread less to start, twenty times.
    settings: { delivery: { uncertain_retry: '1s', threads: IS_FULL ? 'auto' : 1 } },
  })
  const load = startSteadyLoad(t, {
    baseUrl: server.baseUrl,
    key,
    domains,
    batch: 20,
    clients: 4,
    mayPost: (accepted) => accepted - sink.arrivals.size < scene.mostWaiting,
  })
  t.teardown(() => load.stop())
  const mayArriveTwice = new Set<string>()
  let voidCycles = 0
  let mostOfConnection = 0
  for (let cycle = 1; cycle <= kills;) {
    const moment = sink.arrivals.size + random.integer(scene.latestKill)
    await until(
      'enough in flight',
      () => sink.inFlight() >= scene.leastUnderWay && sink.arrivals.size >= moment,
      DEADLINE,
    )
    const underWay = sink.inFlight()
    const connections = sink.connections()
    await server.kill()
    await until('what was on its way has been read', () => sink.connections() === 0)
    const marked = queueRows(server.databaseFolder).filter(({ state, isMarked }) => state === 'sending' && isMarked)
    const arrived = marked.filter(({ recipient }) => sink.arrivals.has(recipient))
    for (const { recipient } of arrived) mayArriveTwice.add(recipient)
    const starting = server.start()
    const text =
      `${underWay} under way on ${connections} connections, ${marked.length} with the dot mark, ` +
      `${arrived.length} of them between final dot and commit`
    if (underWay < scene.leastUnderWay) {
      voidCycles += 1
      t.comment(`void: ${text}`)
    } else {
      t.comment(`cycle ${cycle}: ${text}`)
      if (arrived.length > connections * inFlight)
        t.fail(`cycle ${cycle}: more than ${inFlight} on a connection: ${text}`)
      mostOfConnection = Math.max(mostOfConnection, arrived.length / connections)
      cycle += 1
    }
    await starting
  }
  await load.stop()

  const { accepted } = load
  await until('everything has arrived', () => [...accepted.keys()].every((to) => sink.arrivals.has(to)), DEADLINE)
  await until('everything is recorded', () => hasEnded(server.databaseFolder), DEADLINE)
  const twice = [...sink.arrivals].filter(([, count]) => count > 1)
  const copies = twice.reduce((sum, [, count]) => sum + count - 1, 0)
  t.comment(`${kills} kills, ${voidCycles} void; ${accepted.size} answered with 200, 0 lost, ${copies} duplicates`)
  t.ok(inFlight === 1 || mostOfConnection > 1, `flights were met: ${mostOfConnection.toFixed(1)} in doubt a connection`)
  t.ok(copies > 0, 'some kills came between a final dot and its commit')
  t.same(
    twice.filter(([to]) => !mayArriveTwice.has(to)),
    [],
    'nothing else arrived twice',
  )
  t.same(
    [...sink.messageIds].filter(([, ids]) => ids.size > 1),
    [],
    'a second copy has the Message-ID of the first',
  )
  const unflagged: string[] = []
  for (const [to] of twice) {
    const id = accepted.get(to)
    // A request that was cut off was committed all the same, and nobody knows its id.
    if (id !== undefined && !(await isUncertain(api, id))) unflagged.push(to)
  }
  t.same(unflagged, [], 'every duplicate is flagged')
  const flagged = new Set(
    queueRows(server.databaseFolder)
      .filter(({ isPossibleDuplicate }) => isPossibleDuplicate)
      .map(({ recipient }) => recipient),
  )
  t.same(
    twice.filter(([to]) => !flagged.has(to)),
    [],
  )
  t.equal(await server.stop(), 0)
  t.same(Object.keys(stateCounts(server.databaseFolder)), ['delivered'])
  t.equal(integrityOf(server.databaseFolder), 'ok')
}

t.test('a long queue is no reason to start late', async (t) => {
  const messages = IS_FULL ? 100_000 : 5_000
  const batch = 1_000
  // At the small size the limit allows for a slow and busy machine.
  const longest = IS_FULL ? 3_000 : 30_000
  const scene = await startManyDestinations(t, { answerDelayMilliseconds: 2_000 })
  const { sink, server } = scene
  await post(scene, messages, batch)
  await server.kill()
  const before = sink.begun()
  const startedAt = performance.now()
  const [sentAt] = await Promise.all([
    until('the first mail goes out', () => sink.begun() > before && performance.now()),
    server.start(),
  ])
  const { waiting = 0 } = stateCounts(server.databaseFolder)
  t.comment(`${waiting} queued: the first mail went out ${Math.round(sentAt - startedAt)} ms after the start`)
  t.ok(waiting > messages / 2)
  t.ok(sentAt - startedAt < longest, `within ${longest} ms`)
})

async function isUncertain(api: ManyDestinations['api'], id: string): Promise<boolean> {
  const { body } = await api.get(`/email/${id}`)
  return (body['data'] as { uncertain: boolean }).uncertain
}

async function post({ api, domains }: ManyDestinations, messages: number, batch: number): Promise<void> {
  for (let sent = 0; sent < messages; sent += batch) {
    const recipients = Array.from({ length: batch }, (_, index) => ({
      to: `reader-${sent + index}@${domains[index % domains.length]}`,
    }))
    const { status } = await api.post('/email/batch', {
      from: 'shop@acme.test',
      subject: 'Order',
      text: 'On its way',
      recipients,
    })
    if (status !== 200) throw new Error(`not accepted: ${status}`)
  }
}
