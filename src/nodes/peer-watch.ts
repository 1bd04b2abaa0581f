/**
 * Who of the other nodes is dead. Death is observed, and not computed from clocks: a node that lives commits at least
 * with each of its beats. Pure.
 */
import type { NodeRecord } from '../store/records/node-records.ts'

export const BEAT_MILLISECONDS = 2_000
/** So many beats of mine in a row, each of which reached the database, in which it committed nothing: 12 s. */
const MOST_SILENT_BEATS = 6

interface Seen {
  epoch: number
  lastCommit: number
  /** Of mine since then. */
  beats: number
}

/** Told what each beat found; returns those that are dead. */
export function createPeerWatch(ownNodeId: string) {
  let known = new Map<string, Seen>()
  return (nodes: readonly NodeRecord[]): NodeRecord[] => {
    const peers = nodes.filter(({ nodeId, state }) => nodeId !== ownNodeId && state === 'living')
    known = new Map(
      peers.map(({ nodeId, epoch, lastCommit }) => {
        const before = known.get(nodeId)
        const isSilent = before?.epoch === epoch && before.lastCommit === lastCommit
        return [nodeId, { epoch, lastCommit, beats: isSilent ? before.beats + 1 : 0 }]
      }),
    )
    return peers.filter(({ nodeId }) => (known.get(nodeId)?.beats ?? 0) >= MOST_SILENT_BEATS)
  }
}
