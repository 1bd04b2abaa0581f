/**
 * The nodes of the database as administrators see them, and what they ask of one. ServiceError `not_found` for a node
 * that is not there, `conflict` for one that lives and is to be forgotten, and where there is one alone.
 */
import { ServiceError } from '../base/errors.ts'
import type { NodeAdministration } from '../http/exchange/operator-features.ts'
import type { Nodes } from '../nodes/nodes.ts'
import type { Store } from '../store/store.ts'

interface NodeAdministrationParts {
  nodes: Pick<Nodes, 'nodeId' | 'problems' | 'wake'>
  store: Pick<Store, 'nodesSeen' | 'drainNode' | 'forgetNode'>
}

export function createNodeAdministration({ nodes, store }: NodeAdministrationParts): NodeAdministration {
  const requireNodes = (): void => {
    if (nodes.nodeId === null) throw new ServiceError('conflict', 'there is one node, with SQLite')
  }
  const unknown = (nodeId: string): ServiceError => new ServiceError('not_found', `node ${nodeId.slice(0, 64)}`)
  return {
    async nodes() {
      const { nodeId } = nodes
      const seen = nodeId === null ? { nodes: [], owners: [] } : await store.nodesSeen()
      return { nodeId, ...seen, problems: nodes.problems() }
    },
    async drainNode(nodeId, isDraining) {
      requireNodes()
      if (!(await store.drainNode(nodeId, isDraining))) throw unknown(nodeId)
      if (nodeId === nodes.nodeId) nodes.wake()
    },
    async forgetNode(nodeId) {
      requireNodes()
      const seen = await store.nodesSeen()
      const node = seen.nodes.find((each) => each.nodeId === nodeId)
      if (node === undefined) throw unknown(nodeId)
      const isForgotten = await store.forgetNode(nodeId)
      if (!isForgotten) throw new ServiceError('conflict', `${nodeId} lives: stop it first`)
    },
  }
}
