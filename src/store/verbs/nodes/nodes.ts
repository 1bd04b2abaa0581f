/**
 * Nodes of the database: which epochs live, and which egress IP is whose (store/README.md "Several nodes"). SQLite has
 * one node, without a name.
 *
 *   (none), stopped, dead -> living   beginEpoch
 *   living -> stopped                 endNode: it has given back what it held
 *   living -> dead                    endNode: another node did not see it live
 */
import type { Database } from '../../engine/database.ts'
import type { IpOwner, NodeRecord, NodesSeen } from '../../records/node-records.ts'
import { createFreeing } from '../queue/freed-leases.ts'
import { oneColumn } from '../tools/statements.ts'
import type { SomeVerbs } from '../tools/verb-types.ts'
import { createEndWaitsAhead } from './times-ahead.ts'

/** The node of a database that has one alone. */
const ALONE = ''

export function createNodeWrites(database: Database) {
  const raise = oneColumn(database)<[], number>(`
    update meta set value = value + 1 where name = 'epoch' returning value`)
  const leave = database.prepare<[string]>(`update nodes set state = 'stopped' where node_id = ?`)
  const begin = database.prepare<[string, number, number, number]>(`
    insert into nodes (node_id, epoch, state, started_at, beat_at)
    values (?, ?, 'living', ?, ?)
    on conflict (node_id) do update
    set epoch = excluded.epoch, state = 'living', started_at = excluded.started_at, beat_at = excluded.beat_at,
      ended_by = null`)
  const removeOwners = database.prepare<[]>(`
    delete from ip_owners where epoch not in (select epoch from nodes where state = 'living')`)
  const findNewest = oneColumn(database)<[], number>(
    'select created_at from messages where seq = (select max(seq) from messages)',
  )
  const beat = database.prepare<[number, string, string, string, number]>(`
    update nodes set beat_at = ?, version = ?, config_hash = ? where node_id = ? and epoch = ?`)
  const take = database.prepare<[string, number, number]>(`
    insert into ip_owners (ip, epoch, since)
    values (?, ?, ?)
    on conflict (ip) do update set epoch = excluded.epoch, since = excluded.since
    where ip_owners.epoch not in (select epoch from nodes where state = 'living')`)
  const release = database.prepare<[string, number]>('delete from ip_owners where ip = ? and epoch = ?')
  const end = database.prepare<[string, string | null, string, number]>(`
    update nodes set state = ?, ended_by = ? where node_id = ? and epoch = ? and state = 'living'`)
  const releaseAll = database.prepare<[number]>('delete from ip_owners where epoch = ?')
  const drain = database.prepare<[number, string]>(`update nodes set is_draining = ? where node_id = ?`)
  const keepNumbers = database.prepare<[string]>(`update last_commits set node_id = '' where node_id = ?`)
  const forget = database.prepare<[string]>(`delete from nodes where node_id = ? and state <> 'living'`)
  const freeing = createFreeing(database)
  const look = createNodesSeen(database)

  return {
    beginEpoch(now, uncertainAt, nodeId = ALONE) {
      // What it held before is what no living node holds.
      leave.run(nodeId)
      removeOwners.run()
      const { recovered, uncertain } = freeing.abandoned(now, uncertainAt, Number.MAX_SAFE_INTEGER)
      const epoch = raise.get() ?? 0
      begin.run(nodeId, epoch, now, now)
      return { epoch, recovered, uncertain, newestAt: findNewest.get() ?? null }
    },
    endWaitsAhead: createEndWaitsAhead(database),
    beat({ nodeId, epoch, now, version, configHash, takes, releases }) {
      beat.run(now, version, configHash, nodeId, epoch)
      for (const ip of releases) release.run(ip, epoch)
      for (const ip of takes) take.run(ip, epoch, now)
      return look()
    },
    endNode({ nodeId, epoch, state, by }) {
      if (end.run(state, state === 'dead' ? by : null, nodeId, epoch).changes === 0) return false
      releaseAll.run(epoch)
      return true
    },
    freeAbandoned: ({ now, uncertainAt, limit }) => freeing.abandoned(now, uncertainAt, limit),
    drainNode: (nodeId, isDraining) => drain.run(Number(isDraining), nodeId).changes > 0,
    forgetNode(nodeId) {
      if (nodeId === ALONE) return false
      if (forget.run(nodeId).changes === 0) return false
      // Its numbers are never given again.
      keepNumbers.run(nodeId)
      return true
    },
  } satisfies SomeVerbs
}

export function createNodeReads(database: Database) {
  const findChanges = oneColumn(database)<[], number>(`select value from meta where name = 'changes'`)
  return { nodesSeen: createNodesSeen(database), changesSeen: () => findChanges.get() ?? 0 } satisfies SomeVerbs
}

function createNodesSeen(database: Database): () => NodesSeen {
  const findNodes = database.prepare<[], Omit<NodeRecord, 'isDraining'> & { isDraining: number }>(`
    select node_id as nodeId, epoch, state, is_draining as isDraining, version, config_hash as configHash,
      started_at as startedAt, beat_at as beatAt, ended_by as endedBy,
      coalesce((select max(number) from last_commits where last_commits.node_id = nodes.node_id), 0) as lastCommit
    from nodes
    where node_id <> ''
    order by node_id`)
  const findOwners = database.prepare<[], IpOwner>(`
    select ip_owners.ip, nodes.node_id as nodeId, ip_owners.epoch, ip_owners.since
    from ip_owners
    cross join nodes on nodes.epoch = ip_owners.epoch and nodes.state = 'living'
    order by ip_owners.ip`)
  return () => ({
    nodes: findNodes.all().map((row) => ({ ...row, isDraining: row.isDraining === 1 })),
    owners: findOwners.all(),
  })
}
