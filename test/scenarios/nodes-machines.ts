/**
 * Run by `nodes-machines.test.ts`, in a network namespace: three nodes, each on a machine of its own, with egress IPs that
 * keepalived moves as systemd/README.md shows it. A machine loses its power, a process is killed, a machine is cut off
 * from PostgreSQL, from the other machines, from the world. Nothing is lost, what came twice is flagged, IPs move, and
 * nothing leaves from an address that is not the message's.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { DEADLINE, isDead, loadAt, settle } from '../support/cluster-load.ts'
import { keepalivedOn, writeMoveIp, type Keepalived } from '../support/keepalived.ts'
import {
  floatingAddress,
  networkOf,
  ourAddress,
  startMachine,
  startNetworks,
  type Machine,
} from '../support/machines.ts'
import { startNodeCluster, type ClusterNode, type NodeCluster } from '../support/node-cluster.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { randomSource } from '../support/random-source.ts'
import { freePort } from '../support/serve-process.ts'
import { until } from '../support/until.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const LOSSES = IS_FULL ? 20 : 0
const CUT_MILLISECONDS = IS_FULL ? 60_000 : 5_000
const LONGEST_ANSWER = 200
/** A busy machine takes longer. */
const SENDS_WITHIN = IS_FULL ? 30_000 : 60_000
/** From a commit until a look sees it. */
const LOOK = 500
const NUMBERS = [1, 2, 3]

interface Place extends ClusterNode {
  machine: Machine
  keepalived: Keepalived
}

interface World extends NodeCluster {
  places: Place[]
}

t.setTimeout(0)

t.test('nodes on machines of their own', { skip: skipWithoutPostgres }, async (t) => {
  const world = await startWorld(t)
  const [, two, three] = world.places
  if (two === undefined || three === undefined) return
  if (IS_FULL) {
    for (let loss = 1; loss <= LOSSES; loss += 1) {
      const place = await holder(world)
      await t.test(`loss ${loss}: of ${place.nodeId}`, (t) => lose(t, world, place, loss % 2 === 0))
    }
    await t.test('one is cut off from PostgreSQL', async (t) => cutOff(t, world, await holder(world)))
  } else {
    await t.test('one loses its power while another one is cut off from PostgreSQL', async (t) => {
      await Promise.all([lose(t, world, two, false), cutOff(t, world, three)])
    })
  }
  await t.test('the machines are cut off from each other, and one from the world', async (t) => {
    const loads = loadAt(t, world, world.places)
    const { machine: far } = await holder(world)
    for (const { machine } of world.places) machine.setAlone(true)
    far.cut(true, 'world')
    await sleep(CUT_MILLISECONDS)
    far.cut(false, 'world')
    // keepalived takes the addresses from a device whose cable is pulled.
    if (IS_FULL) far.pull(true, 'world')
    if (IS_FULL) await sleep(CUT_MILLISECONDS)
    far.pull(false, 'world')
    for (const { machine } of world.places) machine.setAlone(false)
    t.same(
      world.places.map(({ server }) => server.exitCode()),
      [null, null, null],
      'all live on',
    )
    await settle(t, world, loads)
  })
  await rightSources(t, world)
})

async function startWorld(t: Test): Promise<World> {
  startNetworks()
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-machines-'))
  t.teardown(() => rmSync(folder, { recursive: true }))
  const machines = await Promise.all(NUMBERS.map(startMachine))
  const postgres = await startPostgres(t, { networks: [networkOf('database')] })
  const httpPort = await freePort()
  const ips = NUMBERS.map(floatingAddress)
  const keepers = machines.map((machine, index) => {
    const healthUrl = `http://${machine.address('clients')}:${httpPort}/health`
    const keepalived = keepalivedOn(machine, { folder, nodeId: `node-${index + 1}`, healthUrl, ips })
    keepalived.start()
    return { machine, keepalived }
  })
  const random = randomSource(25)
  const cluster = await startNodeCluster(t, {
    count: NUMBERS.length,
    postgres,
    urlFor: (name) => `postgres://postgres@${ourAddress('database')}:${postgres.port}/${name}?sslmode=disable`,
    worldAddress: ourAddress('world'),
    ipOf: floatingAddress,
    machineOf(number) {
      const { command = [], address } = machines[number - 1] ?? {}
      return { command, httpAddress: address?.('clients') ?? '', httpPort }
    },
    settings: { cluster: { ip_hook: writeMoveIp(folder) } },
    answerDelayMilliseconds: () => random.integer(LONGEST_ANSWER),
  })
  const places = cluster.nodes.flatMap((node, index) => {
    const keeper = keepers[index]
    return keeper === undefined ? [] : [{ ...node, ...keeper }]
  })
  return { ...cluster, places }
}

/** Some node that sends from an IP. */
async function holder({ places, owners }: World): Promise<Place> {
  const found = await owners()
  const place = places.find(({ nodeId }) => found[nodeId] !== undefined)
  if (place === undefined) throw new Error('nobody has an IP')
  return place
}

/** Whatever the node had leaves from another machine. Resolves with those IPs. */
async function moves(t: Test, world: World, place: Place, from: number): Promise<string[]> {
  const { owners, sink, places } = world
  const held = (await owners())[place.nodeId] ?? []
  t.not(held.length, 0, 'it sends')
  await until('it is declared dead', isDead(world, place), DEADLINE)
  const deadAt = performance.now()
  const moving = held.map(async (ip) => {
    let movedTo: Place | undefined
    await until(
      `${ip} has moved`,
      async () => {
        movedTo = places.find(({ machine }) => machine !== place.machine && machine.addresses().includes(ip))
        return movedTo !== undefined
      },
      DEADLINE,
    )
    const movedAt = performance.now()
    t.ok((sink.lastFrom.get(ip) ?? 0) < deadAt + LOOK, 'nothing came from it between the death and the move')
    await until(`${ip} sends`, () => (sink.lastFrom.get(ip) ?? 0) > movedAt, DEADLINE)
    const took = performance.now() - from
    t.ok(took < SENDS_WITHIN, `${ip} sends from ${movedTo?.nodeId} after ${Math.round(took)} ms`)
  })
  await Promise.all(moving)
  return held
}

/** By a kill of the process, or, without power, with all of its machine. */
async function lose(t: Test, world: World, place: Place, hasPower: boolean): Promise<void> {
  const loads = loadAt(t, world, world.places)
  await sleep(1_500)
  const moving = moves(t, world, place, performance.now())
  if (!hasPower) {
    place.machine.pull(true)
    place.keepalived.kill()
  }
  await place.server.kill()
  const moved = await moving
  if (!hasPower) {
    place.keepalived.start()
    place.machine.pull(false)
  }
  await place.server.start()
  await settle(t, world, loads)
  await until('its machine has the addresses no more', () => {
    const left = place.machine.addresses()
    return !moved.some((ip) => left.includes(ip))
  })
}

async function cutOff(t: Test, world: World, place: Place): Promise<void> {
  const loads = loadAt(
    t,
    world,
    world.places.filter((each) => each !== place),
  )
  await sleep(1_500)
  const moving = moves(t, world, place, performance.now())
  place.machine.cut(true, 'database')
  await Promise.all([moving, sleep(CUT_MILLISECONDS)])
  place.machine.cut(false, 'database')
  await until('it ends', () => place.server.exitCode() !== null, DEADLINE)
  t.equal(place.server.exitCode(), 1)
  await place.server.start()
  await settle(t, world, loads)
}

/** Each mail came from the IP that its attempt names. */
async function rightSources(t: Test, { sink, postgres, database }: World): Promise<void> {
  const rows = await postgres.query(
    `select recipient, ip from attempts join messages on messages.seq = attempts.message_seq where result = 'delivered'`,
    database,
  )
  const wrong = rows.filter(({ recipient, ip }) => sink.sourcesOf.get(String(recipient))?.has(String(ip)) !== true)
  t.not(rows.length, 0)
  t.same(wrong, [], `${rows.length} mails came from the IPs of their attempts`)
  t.same([...sink.sources].toSorted(), NUMBERS.map(floatingAddress), 'and no mail from another address')
}
