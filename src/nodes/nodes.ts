/**
 * This node among the others that work with the same PostgreSQL (nodes/README.md). It beats, watches the others, frees
 * what a dead one held, and holds its egress IPs. Whatever it decides counts by what the store lets it commit.
 *
 * `start` rejects when the store does; later beats are tried again.
 */
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import { createPollLoop } from '../base/poll-loop.ts'
import type { NodeRecord, NodesSeen } from '../store/records/node-records.ts'
import type { Store } from '../store/store.ts'
import { createHeldIps } from './held-ips.ts'
import { createIpHook } from './ip-hook.ts'
import { BEAT_MILLISECONDS, createPeerWatch } from './peer-watch.ts'

export interface Nodes {
  /** null: there is no other node, and never will be. */
  nodeId: string | null
  /** Why nothing leaves from an IP here; null: it does. */
  refusalOf(ip: string): string | null
  /** Another node sends from it. */
  isElsewhere(ip: string): boolean
  /** Of the living nodes the one that has lived longest: jobs that one node does for all are its. */
  isFirst(): boolean
  /** Nodes that live, at least 1. */
  living(): number
  /** It is to hold nothing: no mail is accepted, and nothing claimed. */
  isDraining(): boolean
  onEvent(listener: Partial<NodeEvents>): void
  /** IPs that could not be taken, and why. */
  problems(): { ip: string; problem: string }[]
  /** Something was asked of it: it beats now. */
  wake(): void
  start(): Promise<void>
  /** It ends: its IPs and what it holds still are free. */
  stop(): Promise<void>
}

/** All that is known of them. */
export interface NodesReport extends NodesSeen {
  /** That answers; null: there is one, with SQLite. */
  nodeId: string | null
  problems: ReturnType<Nodes['problems']>
}

interface NodeEvents {
  /** It works on rows still, or on some that leave from this IP: until they have ended, IPs stay. */
  isBusy(ip?: string): boolean
  /** An IP that was held cannot be bound any more. */
  isGone(ip: string): boolean
  /** An IP comes: what others have left of it is read. */
  taken(ip: string): Promise<void>
  /** It goes: what is known of it is stored. */
  leaving(ip: string): Promise<void>
  /** IPs are held by others than before. Resolves when what begins heeds it. */
  ipsChanged(): Promise<void>
  /** Somebody has changed keys, domains, states of IPs or certificates. */
  othersChanged(): void
  /** Others have committed something. */
  othersWrote(): void
  /** There may be rows to take: a dead node held them, or this one works again. */
  freed(): void
}

/** There is no other node. */
export const ALONE: Nodes = {
  nodeId: null,
  refusalOf: () => null,
  isElsewhere: () => false,
  isFirst: () => true,
  living: () => 1,
  isDraining: () => false,
  onEvent: () => {},
  problems: () => [],
  wake: () => {},
  start: async () => {},
  stop: async () => {},
}

interface NodesOptions {
  store: Pick<Store, 'beat' | 'endNode' | 'freeAbandoned' | 'changesSeen' | 'nodesSeen'>
  nodeId: string
  epoch: number
  version: string
  /** Of what has to be the same on all nodes. */
  configHash: () => string
  configuredIps: () => readonly { address: string; source: string }[]
  hook: () => { ip_hook: string | null; ip_hook_timeout: number }
  canBind: (address: string) => Promise<boolean>
  clock: Clock
  realClock: Clock
  uncertainRetry: () => number
  /** The process must end. */
  onFatal: (reason: Error) => void
  logger: Logger
  metrics: Pick<Metrics, 'leasesRecovered' | 'uncertainDeliveries' | 'nodesLiving' | 'egressIpsHeld'>
}

/** Rows of a dead node that one verb frees at most. */
const FREED_AT_ONCE = 500
const BEATS_OF_A_MINUTE = 30
/** Between two looks at what others have changed: what is remembered is at most twice as old. */
const LOOK_MILLISECONDS = 1_000

export function createNodes(options: NodesOptions): Nodes {
  const { store, nodeId, epoch, version, realClock, logger, metrics } = options
  const steady = steadyClock(options)
  const events = createEvents()
  const watch = createPeerWatch(nodeId)
  const ips = createHolding(options, events)
  const look = createLook(options, events)
  const reap = createReaping(options, events)
  let living: NodeRecord[] = []
  let beats = 0
  let isDraining = false
  let isLeaving = false
  const isFirst = (): boolean => living.every((node) => node.epoch >= epoch)
  const loop = createPollLoop({
    clock: steady,
    round: beat,
    onError: (thrown) => logger.warn({ err: thrown }, 'a beat did not reach the database'),
  })
  const looking = createPollLoop({ clock: steady, round: look, onError: () => {} })

  async function beat(): Promise<number> {
    // Its last IPs are let go by `stop`.
    const mayHold = isLeaving || !isDraining || events.isBusy()
    const { takes, releases } = await ips.wishes(mayHold, !isDraining && !isLeaving)
    const startedAt = performance.now()
    const request = { nodeId, epoch, now: realClock.now(), version, configHash: options.configHash(), takes, releases }
    const seen = await store.beat(request)
    note(seen)
    ips.heard(seen.owners, releases)
    await reap.freeLeft()
    let hasReaped = false
    const times = { startedAt, heardAt: performance.now() }
    for (const dead of watch(seen.nodes, times)) hasReaped = (await reap(dead)) || hasReaped
    // What a node had not freed yet when it died itself.
    if (beats++ % BEATS_OF_A_MINUTE === 0 && isFirst()) await reap.free()
    // Its IPs are free now.
    return hasReaped ? startedAt : startedAt + BEAT_MILLISECONDS
  }

  function note({ nodes }: NodesSeen): void {
    living = nodes.filter(({ state }) => state === 'living')
    metrics.nodesLiving.set(living.length)
    const wanted = nodes.find((node) => node.nodeId === nodeId)?.isDraining ?? false
    if (wanted === isDraining) return
    isDraining = wanted
    logger.warn({ node: nodeId }, isDraining ? 'the node drains' : 'the node works again')
    if (!isDraining) events.freed()
  }

  return {
    nodeId,
    refusalOf: ips.refusalOf,
    isElsewhere: ips.isOfOther,
    isFirst,
    living: () => Math.max(1, living.length),
    isDraining: () => isDraining || isLeaving,
    onEvent: events.add,
    problems: ips.problems,
    wake: loop.wake,
    async start() {
      await beat()
      // Others see it live, however long the operator's program takes.
      loop.start()
      looking.start()
      await ips.settled()
    },
    async stop() {
      isLeaving = true
      await looking.stop()
      await ips.leaveAll()
      await loop.stop()
      try {
        if (await store.endNode({ nodeId, epoch, state: 'stopped', by: nodeId })) await reap.free()
      } catch (thrown) {
        // Others see soon that it does not live.
        logger.warn({ err: thrown }, 'the end of the node could not be stored')
      }
    },
  }
}

/** A clock that is set, or leaps, holds up no beat. */
const steadyClock = ({ realClock }: NodesOptions): Clock => ({
  now: () => performance.now(),
  after: (milliseconds, callback) => realClock.after(milliseconds, callback),
})

function createHolding(options: NodesOptions, events: Events) {
  const ips = createHeldIps({
    ...options,
    configured: options.configuredIps,
    hasHook: () => options.hook().ip_hook !== null,
    runHook: createIpHook(options.hook, options.nodeId),
    onTaken: events.taken,
    onLeaving: events.leaving,
    onChange() {
      options.metrics.egressIpsHeld.set(ips.held().length)
      return events.ipsChanged()
    },
    isBusy: events.isBusy,
    isGone: events.isGone,
    clock: steadyClock(options),
  })
  return ips
}

function createEvents() {
  const listeners: Partial<NodeEvents>[] = []
  return {
    add: (listener: Partial<NodeEvents>): void => void listeners.push(listener),
    isBusy: (ip?: string): boolean => listeners.some(({ isBusy }) => isBusy?.(ip) === true),
    isGone: (ip: string): boolean => listeners.some(({ isGone }) => isGone?.(ip) === true),
    async taken(ip: string): Promise<void> {
      for (const { taken } of listeners) await taken?.(ip)
    },
    async leaving(ip: string): Promise<void> {
      for (const { leaving } of listeners) await leaving?.(ip)
    },
    async ipsChanged(): Promise<void> {
      for (const { ipsChanged } of listeners) await ipsChanged?.()
    },
    othersChanged: () => listeners.forEach(({ othersChanged }) => othersChanged?.()),
    othersWrote: () => listeners.forEach(({ othersWrote }) => othersWrote?.()),
    freed: () => listeners.forEach(({ freed }) => freed?.()),
  }
}

type Events = ReturnType<typeof createEvents>

/**
 * Each second: whether others have changed what is remembered here, or brought events. Where they have done less than
 * before, this is an older copy, and what is remembered of the rest is wrong: the process ends.
 */
function createLook({ store, nodeId, onFatal }: NodesOptions, events: Events): () => Promise<number> {
  let changes: number | undefined
  let last: NodeRecord[] = []
  return async () => {
    const [number, { nodes }] = await Promise.all([store.changesSeen(), store.nodesSeen()])
    const others = nodes.filter((node) => node.nodeId !== nodeId && node.state === 'living')
    if (number < (changes ?? 0) || others.some((node) => last.some((before) => isOlder(node, before)))) {
      onFatal(new Error('the database is an older copy: it lacks what other nodes had committed'))
    }
    if (changes !== undefined && number !== changes) events.othersChanged()
    if (commitsOf(others) !== commitsOf(last)) events.othersWrote()
    changes = number
    last = others
    return performance.now() + LOOK_MILLISECONDS
  }
}

const commitsOf = (nodes: NodeRecord[]): string => nodes.map((node) => `${node.nodeId} ${node.lastCommit}`).join()

/** Each start of a node counts its commits from its own clock on. */
const isOlder = (node: NodeRecord, before: NodeRecord): boolean =>
  node.nodeId === before.nodeId && node.epoch === before.epoch && node.lastCommit < before.lastCommit

/** A node that did not live is declared dead, and what it held is due again, in parts. */
function createReaping(options: NodesOptions, events: Events) {
  const { store, nodeId, clock, logger, metrics } = options
  /** What a dead node held may not be free yet. */
  let mustFree = false
  async function free(): Promise<void> {
    const freed = { recovered: 0, uncertain: 0, webhooks: 0 }
    let isMore = true
    while (isMore) {
      const now = clock.now()
      const uncertainAt = now + options.uncertainRetry()
      const part = await store.freeAbandoned({ now, uncertainAt, limit: FREED_AT_ONCE })
      for (const kind of ['recovered', 'uncertain', 'webhooks'] as const) freed[kind] += part[kind]
      isMore = Math.max(part.recovered, part.uncertain) === FREED_AT_ONCE
    }
    metrics.leasesRecovered.inc(freed.recovered + freed.uncertain)
    metrics.uncertainDeliveries.inc(freed.uncertain)
    if (Object.values(freed).some((count) => count > 0)) logger.info(freed, 'rows that no node holds are due again')
  }
  const reap = async (dead: NodeRecord): Promise<boolean> => {
    const isEnded = await store.endNode({ nodeId: dead.nodeId, epoch: dead.epoch, state: 'dead', by: nodeId })
    if (!isEnded) return false
    logger.error({ node: dead.nodeId, epoch: dead.epoch }, 'a node is dead')
    mustFree = true
    await freeLeft()
    return true
  }
  /** A try before this one may have failed. */
  const freeLeft = async (): Promise<void> => {
    if (!mustFree) return
    await free()
    mustFree = false
    events.freed()
  }
  return Object.assign(reap, { free, freeLeft })
}
