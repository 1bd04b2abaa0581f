/**
 * What several nodes cost: CPU of nodes and PostgreSQL for each message, with 1, 2 and 3 nodes on this machine, each
 * pinned to a core. Every node has the same load, as it would on a machine of its own: nodes that share what a processor
 * can do have smaller groups each, and would be judged for the processor. Figures of a busy machine, or of a start, say
 * nothing.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { CountingSink } from '../support/counting-sink.ts'
import { startNodeCluster } from '../support/node-cluster.ts'
import { skipWithoutPostgres, startPostgres } from '../support/postgres-cluster.ts'
import { startSteadyLoad, type SteadyLoad } from '../support/steady-load.ts'
import { until } from '../support/until.ts'

const COUNTS = [1, 2, 3]
/** Messages of each node before it is measured, as fast as they go: its code has been compiled by then. */
const WARM_UP_MESSAGES = 15_000
const MEASURED_MILLISECONDS = 20_000
const MOST_WAITING = 1_000
/** Messages of each node. */
const PER_SECOND = 300
/** Of a node's CPU for each message, against that of one alone. */
const MOST_MORE = 1.1
const MILLISECONDS_PER_TICK = 10

t.setTimeout(0)

t.test('the cost of a message', { skip: skipWithoutPostgres }, async (t) => {
  const costs: number[] = []
  for (const count of COUNTS) {
    await t.test(`${count} nodes`, async (t) => void costs.push(await measure(t, count)))
  }
  const more = (costs.at(-1) ?? 0) / (costs[0] ?? 1)
  t.ok(more <= MOST_MORE, `${more.toFixed(2)} times the CPU of one node alone`)
})

/** Returns milliseconds of CPU of the nodes for each message. */
async function measure(t: Test, count: number): Promise<number> {
  const postgres = await startPostgres(t)
  const urlFor = (name: string): string => postgres.url(name)
  const machineOf = (number: number) => ({ command: ['taskset', '-c', String(number % availableParallelism())] })
  const cluster = await startNodeCluster(t, { count, postgres, urlFor, machineOf })
  const { nodes, sink, database } = cluster
  const startLoads = (name: string, mayPost: (accepted: number) => boolean) =>
    nodes.map(({ server: { baseUrl }, nodeId }) =>
      startSteadyLoad(t, { ...cluster, baseUrl, batch: 50, clients: 4, mayPost, prefix: `${name}-${nodeId}` }),
    )
  const warming = startLoads(
    'warming',
    (accepted) => accepted < WARM_UP_MESSAGES && accepted - sink.arrivals.size / count < MOST_WAITING,
  )
  await until('every node is warm', () => warming.every(({ accepted }) => accepted.size >= WARM_UP_MESSAGES), 300_000)
  await end(warming, sink)
  const look = async () => {
    const [row] = await postgres.query(
      `select xact_commit as commits, pg_current_wal_lsn() - '0/0' as bytes from pg_stat_database
      where datname = '${database}'`,
      database,
    )
    return {
      at: performance.now(),
      arrived: sink.arrivals.size,
      nodes: nodes.reduce((sum, { server }) => sum + cpuOf(server.processId), 0),
      postgres: cpuBelow(postgres.processId),
      commits: Number(row?.['commits']),
      bytes: Number(row?.['bytes']),
    }
  }
  const start = performance.now()
  const loads = startLoads('measured', (accepted) => accepted < (PER_SECOND * (performance.now() - start)) / 1_000)
  const before = await look()
  await sleep(MEASURED_MILLISECONDS)
  const after = await look()
  const messages = after.arrived - before.arrived
  const each = (field: 'nodes' | 'postgres' | 'commits' | 'bytes'): number => (after[field] - before[field]) / messages
  t.comment(
    `${Math.round((1_000 * messages) / (after.at - before.at))} messages a second; for each: ` +
      `${each('nodes').toFixed(2)} ms of nodes, ${each('postgres').toFixed(2)} ms of PostgreSQL, ` +
      `${each('commits').toFixed(3)} commits, ${Math.round(each('bytes'))} bytes of WAL`,
  )
  await end(loads, sink)
  t.ok(loads.every(({ accepted }) => accepted.size > 0))
  return each('nodes')
}

async function end(loads: readonly SteadyLoad[], { arrivals }: CountingSink): Promise<void> {
  await Promise.all(loads.map((load) => load.stop()))
  await until('all has arrived', () =>
    loads.every(({ accepted }) => [...accepted.keys()].every((to) => arrivals.has(to))),
  )
}

/** Of a process: milliseconds of user and system time, and its parent. Nothing where it has ended. */
function statOf(processId: number | string): { parent: number; cpu: number } | undefined {
  try {
    const fields = readFileSync(`/proc/${processId}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
    return { parent: Number(fields[1]), cpu: (Number(fields[11]) + Number(fields[12])) * MILLISECONDS_PER_TICK }
  } catch {
    return undefined
  }
}

const cpuOf = (processId: number): number => statOf(processId)?.cpu ?? 0

/** Of a process and its children; those that have ended count with it. */
function cpuBelow(processId: number): number {
  const children = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(statOf)
    .filter((stat) => stat?.parent === processId)
  return children.reduce((sum, child) => sum + (child?.cpu ?? 0), cpuOf(processId))
}
