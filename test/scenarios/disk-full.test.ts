/**
 * The disk of the database fills up under load, at random moments, and has space again: what was answered with 200
 * arrives once, everything else is answered 503 `unavailable` and 452, the process lives on, and all goes on by itself
 * within 10 s. store/README.md "Full disk".
 */
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { EXIT } from '../../src/base/errors.ts'
import { startManyDestinations } from '../support/many-destinations.ts'
import { hasEnded, integrityOf, stateCounts } from '../support/queue-rows.ts'
import { randomSource } from '../support/random-source.ts'
import { startRunningAppliance } from '../support/running-appliance.ts'
import { freePort } from '../support/serve-process.ts'
import { MIB, mountSmallDisk, type SmallDisk } from '../support/small-disk.ts'
import { startSteadyLoad } from '../support/steady-load.ts'
import { SENDING_DOMAIN, TWO_IPS } from '../support/two-ips.ts'
import { until } from '../support/until.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const DISK = (IS_FULL ? 256 : 96) * MIB
/** What is left: below the mark of accepting, below that of delivering, nothing. */
const LEFT = [5 * MIB, MIB, 0]
/** Of tmpfs. */
const PAGE = 4_096
const LONGEST_ANSWER = 300
const MOST_WAITING = 300
/** Of a full or a free disk at a time. */
const LONGEST_PHASE = 1_500
const LONGEST_RECOVERY = 10_000
const DEADLINE = 240_000

t.setTimeout(0)

const disk = mountSmallDisk(DISK)
if (disk === undefined) {
  t.pass('left out', { skip: 'a small disk cannot be mounted here: that takes root and the right to mount' })
} else {
  t.teardown(() => disk.remove())
  await t.test('a start that opens its database, and has no space to begin, is worth another one', async (t) => {
    const options = { dnsServer: '127.0.0.1:9', deliveryPort: 9, pools: TWO_IPS, dataFolder: `${disk.folder}/start` }
    const first = await startRunningAppliance(options)
    await first.stop()
    // For the lock and the index of the log.
    disk.fill(10 * PAGE)
    t.teardown(() => disk.free())
    await t.rejects(startRunningAppliance(options), { exitCode: EXIT.disk, message: /cannot be written: SQLITE_FULL/ })
  })
  await t.test('a full disk stops what cannot be stored, and nothing else', (t) =>
    fillAndFree(t, disk, {
      rounds: IS_FULL ? 20 : 4,
      storage: { min_free_accept: '8MiB', min_free_deliver: '2MiB' },
      left: LEFT,
    }),
  )
  await t.test('commits that fail say the same without the marks', (t) =>
    fillAndFree(t, disk, {
      rounds: IS_FULL ? 5 : 2,
      storage: { min_free_accept: '0B', min_free_deliver: '0B' },
      left: [0],
    }),
  )
}

interface Plan {
  rounds: number
  storage: Record<string, string>
  left: readonly number[]
}

async function fillAndFree(t: Test, disk: SmallDisk, { rounds, storage, left }: Plan): Promise<void> {
  const random = randomSource(7)
  const port = await freePort()
  const { sink, server, key, domains } = await startManyDestinations(t, {
    dataFolder: `${disk.folder}/${storage['min_free_accept']}`,
    answerDelayMilliseconds: () => random.integer(LONGEST_ANSWER),
    settings: { storage, listen: { submission: [{ address: '127.0.0.1', port, tls: 'none' }] } },
  })
  const { processId } = server
  let isFull = false
  const load = startSteadyLoad(t, {
    baseUrl: server.baseUrl,
    key,
    domains,
    batch: 10,
    clients: 2,
    // While nothing goes out, what waits must not keep the next request from being refused.
    mayPost: (accepted) => isFull || accepted - sink.arrivals.size < MOST_WAITING,
  })
  t.teardown(() => load.stop())
  t.teardown(() => disk.free())
  let slowest = 0
  for (let round = 0; round < rounds; round += 1) {
    await sleep(random.integer(LONGEST_PHASE))
    const leftBytes = left[round % left.length] ?? 0
    const refusedBefore = load.refusals.length
    const inFlight = sink.inFlight()
    isFull = true
    disk.fill(leftBytes)
    await until(
      'a request is refused',
      () => {
        // What came in after the ballast was measured takes its place.
        disk.fill(leftBytes)
        return load.refusals.length > refusedBefore
      },
      DEADLINE,
    )
    if (leftBytes > 0) {
      await until('SMTP refuses too', async () => (await tryToSubmit(port, key)).startsWith('452 4.3.1'), DEADLINE)
    }
    await sleep(random.integer(LONGEST_PHASE))
    const acceptedBefore = load.accepted.size
    const freedAt = Date.now()
    disk.free()
    isFull = false
    await until(
      'mail is taken again, and goes out',
      () => [...load.accepted.keys()].slice(acceptedBefore).some((to) => sink.arrivals.has(to)),
      DEADLINE,
    )
    const recovery = Date.now() - freedAt
    slowest = Math.max(slowest, recovery)
    t.comment(`round ${round + 1}: ${leftBytes / MIB} MiB left, ${inFlight} in flight, recovered in ${recovery} ms`)
  }
  t.ok(slowest < LONGEST_RECOVERY, `recovered within ${slowest} ms`)
  await load.stop()

  const { accepted, refusals } = load
  await until('everything has arrived', () => [...accepted.keys()].every((to) => sink.arrivals.has(to)), DEADLINE)
  await until('everything is recorded', () => hasEnded(server.databaseFolder), DEADLINE)
  t.comment(`${accepted.size} answered with 200 and delivered, ${refusals.length} requests refused`)
  t.same(
    [...sink.arrivals].filter(([, count]) => count > 1),
    [],
    'nothing arrived twice',
  )
  t.same(
    [...sink.arrivals.keys()].filter((to) => !accepted.has(to)),
    [],
    'nothing was refused and sent',
  )
  t.same(
    refusals.filter(({ status, code, retryAfter }) => status !== 503 || code !== 'unavailable' || retryAfter === null),
    [],
    'every refusal says when to come back',
  )
  t.same(stateCounts(server.databaseFolder), { delivered: accepted.size })
  t.same([server.exitCode(), server.processId], [null, processId], 'the process has lived on')
  t.equal(await server.stop(), 0)
  t.equal(integrityOf(server.databaseFolder), 'ok')
}

/** The answer to MAIL, after a login. */
async function tryToSubmit(port: number, key: string): Promise<string> {
  const socket = connect(port, '127.0.0.1').setEncoding('latin1')
  socket.on('error', () => socket.destroy())
  const hear = async (): Promise<string> => {
    const [text] = await once(socket, 'data')
    return String(text)
  }
  try {
    await hear()
    const login = Buffer.from(`\0sternpost\0${key}`).toString('base64')
    for (const line of ['EHLO client.test', `AUTH PLAIN ${login}`]) {
      socket.write(`${line}\r\n`)
      await hear()
    }
    socket.write(`MAIL FROM:<shop@${SENDING_DOMAIN}>\r\n`)
    return await hear()
  } finally {
    socket.destroy()
  }
}
