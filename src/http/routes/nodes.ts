/** For administrators: the nodes of the database, and what is asked of one (nodes/README.md). */
import * as wire from '../../api/node.ts'
import { toUnixSeconds, secondsOrNull } from '../../base/clock.ts'
import type { NodesReport } from '../../nodes/nodes.ts'
import type { Administration } from '../exchange/operator-features.ts'
import { okData, success } from '../exchange/answer.ts'
import { param, routesOf, type Note, type Route } from '../exchange/route.ts'

const { get, post, remove } = routesOf('admin')

export function nodeRoutes(administration: Administration, note: Note): Route[] {
  return [
    get('/admin/nodes', {
      summary: 'The nodes that work with this database, and which IPs each of them sends from.',
      ok: okData(wire.nodesSchema),
      handler: async () => success(nodesAnswer(await administration.nodes())),
    }),
    post('/admin/nodes/:node_id/drain', {
      summary: 'A node is to hold nothing: it takes no mail, finishes, and lets its IPs go; or it works again.',
      body: wire.drainNodeSchema,
      ok: okData(wire.drainedNodeSchema),
      errors: ['conflict'],
      async handler(request, { draining }) {
        const nodeId = param(request, 'node_id')
        const isDraining = draining ?? true
        await administration.drainNode(nodeId, isDraining)
        note(isDraining ? 'node drained' : 'drain of a node ended', request, { node: nodeId })
        return success({ node_id: nodeId, draining: isDraining })
      },
    }),
    remove('/admin/nodes/:node_id', {
      summary: 'Forgets a node that does not live.',
      ok: okData(wire.forgottenNodeSchema),
      errors: ['conflict'],
      async handler(request) {
        const nodeId = param(request, 'node_id')
        await administration.forgetNode(nodeId)
        note('node forgotten', request, { node: nodeId })
        return success({ node_id: nodeId, forgotten: true })
      },
    }),
  ]
}

function nodesAnswer({ nodeId: own, nodes, owners, problems }: NodesReport): wire.NodesJson {
  return {
    nodes: nodes.map(({ nodeId, state, isDraining, version, configHash, startedAt, beatAt, endedBy }) => ({
      node_id: nodeId,
      state,
      draining: isDraining,
      answers: nodeId === own,
      version,
      config_hash: configHash,
      started_at: secondsOrNull(startedAt === 0 ? null : startedAt),
      seen_at: toUnixSeconds(beatAt),
      ended_by: endedBy,
      ips: owners.filter((owner) => owner.nodeId === nodeId).map(({ ip }) => ip),
    })),
    problems,
  }
}
