/**
 * Who of the other nodes is dead. Death is observed, and not computed from clocks: a node that lives commits at least
 * with each of its beats. Pure.
 */
import type { NodeRecord } from '../store/records/node-records.ts'

export const BEAT_MILLISECONDS = 2_000
/** So many beats of mine in a row reached the database, over this time, and it committed nothing. */
const MOST_SILENT_BEATS = 6
const LONGEST_SILENCE = 12_000

interface Seen {
  epoch: number
  lastCommit: number
  /** Of mine since then. */
  beats: number
  /** When it was heard of first. */
  since: number
}

/** A beat, by the monotonic clock. */
interface BeatTimes {
  startedAt: number
  heardAt: number
}

/** Told what each beat found; returns those that are dead. */
export function createPeerWatch(ownNodeId: string) {
  let known = new Map<string, Seen>()
  return (nodes: readonly NodeRecord[], { startedAt, heardAt }: BeatTimes): NodeRecord[] => {
    const peers = nodes.filter(({ nodeId, state }) => nodeId !== ownNodeId && state === 'living')
    known = new Map(
      peers.map(({ nodeId, epoch, lastCommit }) => {
        const before = known.get(nodeId)
        const isSilent = before?.epoch === epoch && before.lastCommit === lastCommit
        return [
          nodeId,
          isSilent ? { ...before, beats: before.beats + 1 } : { epoch, lastCommit, beats: 0, since: heardAt },
        ]
      }),
    )
    return peers.filter(({ nodeId }) => {
      const { beats, since } = known.get(nodeId) ?? { beats: 0, since: heardAt }
      return beats >= MOST_SILENT_BEATS && startedAt - since >= LONGEST_SILENCE
    })
  }
}
