/** A node beats whatever the operator’s program does. nodes/README.md. */
import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { HOUR, type Clock } from '../../src/base/clock.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createNodes } from '../../src/nodes/nodes.ts'
import { BEAT_MILLISECONDS } from '../../src/nodes/peer-watch.ts'
import type { IpOwner, NodeRecord } from '../../src/store/records/node-records.ts'
import { manualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

const IP = '192.0.2.7'
const EPOCH = 4
const OWN: NodeRecord = {
  nodeId: 'a',
  epoch: EPOCH,
  state: 'living',
  isDraining: false,
  version: '',
  configHash: '',
  startedAt: 0,
  beatAt: 0,
  endedBy: null,
  lastCommit: 1,
}
const NOTHING_FREED = { recovered: 0, uncertain: 0, webhooks: 0 }
const count = { inc: () => {}, set: () => {} }

const parts = (clock: Clock) => ({
  nodeId: 'a',
  epoch: EPOCH,
  version: '1',
  configHash: () => '',
  configuredIps: () => [] as { address: string; source: string }[],
  hook: () => ({ ip_hook: null as string | null, ip_hook_timeout: 60_000 }),
  canBind: async () => true,
  clock,
  realClock: clock,
  uncertainRetry: () => 0,
  onFatal: (reason: Error) => t.error(reason),
  logger: createLogger({ level: 'silent' }),
  metrics: { leasesRecovered: count, uncertainDeliveries: count, nodesLiving: count, egressIpsHeld: count } as never,
})

t.test('what a dead node held is freed with the next beat where the store failed', async (t) => {
  const clock = manualClock()
  const other: NodeRecord = { ...OWN, nodeId: 'b', epoch: 3, lastCommit: 1 }
  const seen = { nodes: [OWN, other], owners: [] as IpOwner[] }
  let tries = 0
  let freed = 0
  const nodes = createNodes({
    ...parts(clock),
    store: {
      beat: async () => seen,
      async endNode() {
        seen.nodes = [OWN]
        return true
      },
      freeAbandoned: async () => (++tries === 1 ? Promise.reject(new Error('away')) : NOTHING_FREED),
      changesSeen: async () => 0,
      nodesSeen: async () => seen,
    },
  })
  nodes.onEvent({ freed: () => void freed++ })
  let later = 0
  const now = performance.now.bind(performance)
  t.intercept(performance, 'now', { value: () => now() + later })
  await nodes.start()
  await until('it is freed', async () => {
    later += BEAT_MILLISECONDS
    await clock.advance(BEAT_MILLISECONDS)
    return freed > 0
  })
  t.ok(tries > 1, 'it was tried again')
  await nodes.stop()
})

t.test('a database that lacks what other nodes had committed ends the process', async (t) => {
  const before: NodeRecord = { ...OWN, nodeId: 'b', epoch: 3, lastCommit: 7 }
  const cases: [string, Partial<NodeRecord>, number, boolean][] = [
    ['it is as it was', {}, 5, false],
    ['others went on', { lastCommit: 8 }, 6, false],
    ['a start counts from its own clock on', { epoch: 4, lastCommit: 1 }, 5, false],
    ['a commit is missing', { lastCommit: 6 }, 5, true],
    ['a change is missing', { lastCommit: 8 }, 4, true],
  ]
  for (const [name, change, changes, isFatal] of cases) {
    const clock = manualClock()
    let looks = 0
    const reasons: string[] = []
    const seen = (nodes: NodeRecord[]) => ({ nodes, owners: [] as IpOwner[] })
    const nodes = createNodes({
      ...parts(clock),
      onFatal: ({ message }) => void reasons.push(message),
      store: {
        beat: async () => seen([OWN]),
        endNode: async () => true,
        freeAbandoned: async () => NOTHING_FREED,
        changesSeen: async () => (looks > 0 ? changes : 5),
        nodesSeen: async () => seen([OWN, looks++ > 0 ? { ...before, ...change } : before]),
      },
    })
    await nodes.start()
    await until('it has looked twice', async () => {
      await clock.advance(BEAT_MILLISECONDS)
      return looks > 1
    })
    await nodes.stop()
    t.equal(reasons.length > 0, isFatal, name)
  }
})

t.test('it beats while its IPs come and go, however long that takes, and while its clock is set', async (t) => {
  const folder = t.testdir({})
  const [program, said] = [join(folder, 'hook'), join(folder, 'said')]
  writeFileSync(program, `#!/bin/sh\necho $1 >> ${said}\nwhile [ ! -e ${folder}/$1 ]; do sleep 0.02; done\n`)
  chmodSync(program, 0o700)
  const clock = manualClock()
  let beats = 0
  let owners: IpOwner[] = []
  let setBack = 0
  const store = {
    async beat({ takes }: { takes: string[] }) {
      beats += 1
      // The clock of the machine is set while a beat is under way.
      setBack += HOUR
      for (const ip of takes) owners = [{ ip, nodeId: 'a', epoch: EPOCH, since: 0 }]
      return { nodes: [OWN], owners }
    },
    endNode: async () => true,
    freeAbandoned: async () => NOTHING_FREED,
    changesSeen: async () => 0,
    nodesSeen: async () => ({ nodes: [OWN], owners }),
  }
  const nodes = createNodes({
    ...parts(clock),
    store,
    configuredIps: () => [{ address: IP, source: IP }],
    hook: () => ({ ip_hook: program, ip_hook_timeout: 60_000 }),
    realClock: { ...clock, now: () => clock.now() - setBack },
  })
  const beatsOn = async (): Promise<void> => {
    const before = beats
    await until('it beats', async () => {
      await clock.advance(BEAT_MILLISECONDS)
      return beats > before + 1
    })
  }
  const calls = (): string => (existsSync(said) ? readFileSync(said, 'utf8') : '')
  const started = nodes.start()
  await until('the program runs', () => calls().includes('acquire'))
  await beatsOn()
  writeFileSync(join(folder, 'acquire'), '')
  await started
  t.equal(nodes.refusalOf(IP), null)
  const stopped = nodes.stop()
  await until('the program runs', () => calls().includes('release'))
  await beatsOn()
  writeFileSync(join(folder, 'release'), '')
  await stopped
  t.equal(calls(), 'acquire\nrelease\n', 'a beat brings back nothing that goes with a stop')
})
