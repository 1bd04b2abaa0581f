/**
 * Run by `second-machine.test.ts`, in a network namespace: a machine loses its power under load; the other one mounts the
 * volume, takes the address and starts, with the commands of systemd/README.md "More than one machine". Of the volume
 * there is what was on the disk. Nothing that was answered is lost, what came twice is flagged, and mail goes on.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { startCountingSink } from '../support/counting-sink.ts'
import { FAST, zoneOf } from '../support/many-destinations.ts'
import { floatingAddress, ourAddress, startMachine, startNetworks, type Machine } from '../support/machines.ts'
import { hasEnded, queueRows } from '../support/queue-rows.ts'
import { randomSource } from '../support/random-source.ts'
import { startServe, type ServeProcess } from '../support/serve-process.ts'
import { shownText } from '../support/shown-texts.ts'
import { startSteadyLoad, type SteadyLoad } from '../support/steady-load.ts'
import { prepareSender } from '../support/two-ips.ts'
import { until } from '../support/until.ts'
import { startZone } from '../support/zone.ts'

const IS_FULL = process.env['TEST_SCALE'] === 'full'
const LOSSES = IS_FULL ? 10 : 1
/** Between the start and the loss, and after it. */
const UNDER_LOAD = IS_FULL ? 5_000 : 1_500
const LONGEST_ANSWER = 300
/** What the loads have left. */
const LONGEST_REST = 300_000
const MOST_WAITING = 2_000
const IP = floatingAddress(1)
const POOLS = {
  version: 1,
  default_pool: 'default',
  pools: { default: { ips: [{ address: IP, hostname: 'mta1.sternpost.test', warmed: true }] } },
}
const domains = Array.from({ length: 20 }, (_, index) => `d${index}.test`)

t.setTimeout(0)

t.test('a machine is lost, and the other one goes on with its volume', async (t) => {
  startNetworks()
  const [one, two] = await Promise.all([1, 2].map(startMachine))
  if (one === undefined || two === undefined) return
  const random = randomSource(9)
  const world = ourAddress('world')
  const sink = await startCountingSink({
    address: world,
    answerDelayMilliseconds: () => random.integer(LONGEST_ANSWER),
  })
  const zone = await startZone(zoneOf(domains, world), 0, world)
  zone.set('spf.mail.sternpost.test', { TXT: [`v=spf1 ip4:${IP} -all`] })
  const volume = makeVolume()
  let server: ServeProcess
  t.teardown(async () => {
    await Promise.all([sink.close(), zone.close(), server.remove()])
    volume.remove()
  })
  const startOn = ({ command, address }: Machine): Promise<ServeProcess> =>
    startServe({
      command,
      httpAddress: address('clients'),
      dnsServer: zone.server,
      deliveryPort: sink.port,
      dataFolder: volume.folder,
      pools: POOLS,
      files: { 'providers.d/50-fast.yaml': { default: FAST } },
      settings: { api: { requests: 0, recipients: 0 }, delivery: { uncertain_retry: '1s', retry: ['1s'], threads: 1 } },
    })
  volume.takeTo(one)
  server = await startOn(one)
  await prepareSender(server, zone)
  const key = await server.createKey('admin')
  const accepted = new Set<string>()
  let [here, there] = [one, two]
  for (let loss = 1; loss <= LOSSES; loss += 1) {
    const load = loadAt(t, server, key, loss, () => sink.arrivals.size)
    await until('mail leaves', () => sink.inFlight() > 0)
    await sleep(UNDER_LOAD)
    here.pull(true)
    volume.losePower()
    await server.remove()
    volume.release()
    const lostAt = performance.now()
    const stopped = load.stop()
    volume.takeTo(there)
    server = await startOn(there)
    await until('it sends', () => (sink.lastFrom.get(IP) ?? 0) > lostAt)
    await stopped
    for (const to of load.accepted.keys()) accepted.add(to)
    t.comment(`mail left again ${Math.round((sink.lastFrom.get(IP) ?? 0) - lostAt)} ms after the loss`)
    here.run('ip', 'address', 'del', `${IP}/32`, 'dev', 'eth0')
    here.pull(false)
    ;[here, there] = [there, here]
    const more = loadAt(t, server, key, loss + LOSSES, () => sink.arrivals.size)
    await sleep(UNDER_LOAD)
    await more.stop()
    for (const to of more.accepted.keys()) accepted.add(to)
  }
  await until('everything has ended', () => hasEnded(volume.folder), LONGEST_REST)
  const flagged = new Set(queueRows(volume.folder).flatMap((row) => (row.isPossibleDuplicate ? [row.recipient] : [])))
  const twice = [...sink.arrivals].filter(([, copies]) => copies > 1).map(([to]) => to)
  t.same(
    [...accepted].filter((to) => !sink.arrivals.has(to)),
    [],
    `of ${accepted.size} nothing is lost`,
  )
  t.same(
    twice.filter((to) => !flagged.has(to)),
    [],
    `${twice.length} came twice, and are flagged`,
  )
  t.same([...sink.sources], [IP])
  t.equal(await server.stop(), 0)
})

function loadAt(t: Test, { baseUrl }: ServeProcess, key: string, number: number, arrived: () => number): SteadyLoad {
  const before = arrived()
  const mayPost = (posted: number): boolean => posted - (arrived() - before) < MOST_WAITING
  return startSteadyLoad(t, { baseUrl, key, domains, batch: 5, clients: 2, mayPost, prefix: `loss-${number}` })
}

/** `EXT4_IOC_SHUTDOWN` without writing the journal: from now on nothing reaches the disk, as when its power is gone. */
const LOSE_POWER = `
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))`

/** A disk that one machine at a time has mounted. */
function makeVolume() {
  const parent = mkdtempSync(join(tmpdir(), 'sternpost-volume-'))
  const [image, folder] = [join(parent, 'image'), join(parent, 'mounted')]
  mkdirSync(folder)
  execFileSync('truncate', ['--size', '2G', image])
  execFileSync('mkfs.ext4', ['-q', image])
  const release = (): void => void execFileSync('umount', [folder])
  return {
    folder,
    /** By the commands of the page; the last of them starts the service. */
    takeTo(machine: Machine): void {
      const shown = shownText('systemd/README.md', 'mount /dev/disk', {
        '/dev/disk/by-label/sternpost': image,
        '/var/lib/sternpost': folder,
        '203.0.113.7': IP,
      })
      const commands = shown.trim().split('\n')
      if (commands.pop() !== 'systemctl start sternpost') throw new Error('the page shows other commands')
      for (const command of commands) machine.run('sh', '-c', command)
    },
    losePower: () => void execFileSync('python3', ['-c', LOSE_POWER, folder]),
    release,
    remove() {
      release()
      rmSync(parent, { recursive: true })
    },
  }
}
