/**
 * Load at the nodes of a cluster, and what has to hold when it ends: nothing that was answered is lost, what came twice
 * is flagged, and nothing but 503 was answered. For tests that kill nodes, stop them or cut them off.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import type { ClusterNode, NodeCluster } from './node-cluster.ts'
import { startSteadyLoad, type SteadyLoad } from './steady-load.ts'
import { until } from './until.ts'

export const MOST_WAITING = process.env['TEST_SCALE'] === 'full' ? 20_000 : 300
export const DEADLINE = 180_000

let loadsBegun = 0

/** Of clients at these nodes, until what they were told is stored and has arrived. */
export function loadAt(
  t: Test,
  { sink, key, domains }: NodeCluster,
  nodes: readonly (ClusterNode | undefined)[],
  batch = 5,
): SteadyLoad[] {
  const before = sink.arrivals.size
  const loads: SteadyLoad[] = []
  const mayPost = (): boolean => {
    const accepted = loads.reduce((sum, each) => sum + each.accepted.size, 0)
    return accepted - (sink.arrivals.size - before) < MOST_WAITING
  }
  for (const node of nodes) {
    if (node === undefined) continue
    const prefix = `${node.nodeId}-${loadsBegun++}`
    loads.push(startSteadyLoad(t, { baseUrl: node.server.baseUrl, key, domains, batch, clients: 2, mayPost, prefix }))
  }
  return loads
}

/** Resolves with the number of those that have arrived twice so far. */
export async function settle(
  t: Test,
  { sink, postgres, database }: NodeCluster,
  loads: readonly SteadyLoad[],
): Promise<number> {
  await Promise.all(loads.map((load) => load.stop()))
  const accepted = new Set(loads.flatMap((load) => [...load.accepted.keys()]))
  const open = async (): Promise<number> => {
    const [row] = await postgres.query(
      `select count(*) as open from messages where state in ('waiting', 'sending')`,
      database,
    )
    return Number(row?.['open'])
  }
  await until('everything has ended', async () => (await open()) === 0, DEADLINE)
  const flagged = new Set(
    (await postgres.query('select recipient from messages where possible_duplicate = 1', database)).map((row) =>
      String(row['recipient']),
    ),
  )
  const lost = [...accepted].filter((to) => !sink.arrivals.has(to))
  const twice = [...sink.arrivals].filter(([, copies]) => copies > 1).map(([to]) => to)
  t.comment(`${accepted.size} accepted, ${twice.length} arrived twice in all, ${flagged.size} flagged`)
  t.same(lost, [], 'nothing is lost')
  t.same(
    twice.filter((to) => !flagged.has(to)),
    [],
    'every duplicate is flagged',
  )
  const refusals = loads.flatMap((load) => load.refusals).filter(({ status }) => status !== 503)
  t.same(refusals, [], 'nothing but 503 was answered')
  return twice.length
}

/** Each look is a connection of its own: more of them take the time of what they look at. */
const LOOK_EVERY = 250

/** Resolves with the milliseconds that it took. */
export async function timeTo(what: string, look: () => Promise<boolean>): Promise<number> {
  const from = performance.now()
  const lookLater = async (): Promise<boolean> => {
    await sleep(LOOK_EVERY)
    return look()
  }
  await until(what, lookLater, DEADLINE)
  return performance.now() - from
}

export const isDead =
  ({ postgres, database }: NodeCluster, { nodeId }: ClusterNode) =>
  async (): Promise<boolean> => {
    const [row] = await postgres.query(`select state from nodes where node_id = '${nodeId}'`, database)
    return row?.['state'] === 'dead'
  }
