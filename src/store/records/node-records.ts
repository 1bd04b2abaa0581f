/** Nodes: processes that work with one database, and which egress IP belongs to which of them. */
import type { EpochStart } from './claim-records.ts'

type NodeState =
  /** It works, or did when it was seen last. */
  | 'living'
  /** It has ended, and gave back what it held. */
  | 'stopped'
  /** Another node declared it dead: it commits nothing any more. */
  | 'dead'

export interface NodeRecord {
  nodeId: string
  /** Of its last start. */
  epoch: number
  state: NodeState
  /** An operator wants it to hold nothing. */
  isDraining: boolean
  version: string
  configHash: string
  startedAt: number
  /** Its last beat, by its own clock: to be shown, and nothing else. */
  beatAt: number
  /** Who declared it dead, or null. */
  endedBy: string | null
  /** Changes with each of its commits. */
  lastCommit: number
}

export interface IpOwner {
  ip: string
  nodeId: string
  epoch: number
  since: number
}

export interface BeatRequest {
  nodeId: string
  epoch: number
  now: number
  version: string
  configHash: string
  /** Egress IPs that it would send from: those that no living node owns become its own. */
  takes: string[]
  /** Those that it sends from no longer. */
  releases: string[]
}

/** What a node sees at a beat. */
export interface NodesSeen {
  nodes: NodeRecord[]
  /** IPs that living nodes own. */
  owners: IpOwner[]
}

/** Work of a node that has ended. */
interface EndNodeRequest {
  nodeId: string
  /** Of the start that has ended: a later one goes on. */
  epoch: number
  state: 'stopped' | 'dead'
  /** The node that says so. */
  by: string
}

export interface FreedRows {
  /** Messages without a dot mark: due at once. */
  recovered: number
  /** Those with one: due after the uncertain wait, marked as possible duplicates. */
  uncertain: number
  webhooks: number
}

export interface NodeVerbs {
  /**
   * Raises the epoch and makes every message and webhook delivery due again that no living node holds: what an older
   * epoch of this node held. Left out: there is one node, without a name.
   */
  beginEpoch(now: number, uncertainAt: number, nodeId?: string): Promise<EpochStart>
  /**
   * What waits for a time that no wait reaches, which a clock wrote that was put off, waits no longer; of messages at
   * most `limit`. Neither do the newest messages, and webhook deliveries, that were accepted or tried in what is the
   * future. Returns how many messages.
   */
  endWaitsAhead(now: number, limit: number): Promise<number>
  /** Says that the node lives, and asks who else does. */
  beat(request: BeatRequest): Promise<NodesSeen>
  /** It holds nothing from now on, and its IPs are free. False: it has begun anew, or had ended before. */
  endNode(request: EndNodeRequest): Promise<boolean>
  /** What no living node holds is due again; of messages at most `limit` of each kind. */
  freeAbandoned(request: { now: number; uncertainAt: number; limit: number }): Promise<FreedRows>
  /** Whether it is to hold nothing. False: there is no such node. */
  drainNode(nodeId: string, isDraining: boolean): Promise<boolean>
  /** Only one that does not live. */
  forgetNode(nodeId: string): Promise<boolean>
  nodesSeen(): Promise<NodesSeen>
  /** Another number when somebody has changed keys, domains, states of IPs or certificates. */
  changesSeen(): Promise<number>
}
