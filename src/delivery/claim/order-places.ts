/**
 * The places of due queue keys in the order of turns: by group (pool, route), stream and lane, each with its ring. A
 * group without due keys, and a lane without them, has no place. Every step takes constant time. Never throws.
 */
import type { Stream } from '../../mail/message.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import { createTurnRing, type TurnRing } from './turn-ring.ts'

/** Turns that nobody new has used, at most. */
const MOST_CREDIT = 100
const CREDIT_PER_TURN = 0.5

/** Keys that share paths. */
export type RouteGroup = { pool: string; route: string }
export type KeyAsk = { key: QueueKey; limit: number }

/** `round`, here and below: the last one it was looked at in; what was found then holds for that round alone. */
export interface DueKey {
  name: string
  key: QueueKey
  due: number
  lane: OrderLane
  round: number
  room: number
  ask: KeyAsk | null
}

/** A lane in one group. */
export interface OrderLane {
  group: OrderGroup
  stream: Stream
  /** What the lane has in all groups. */
  whole: WholeLane
  first: DueKey | null
  retry: DueKey | null
  /** An odd turn was given to a first attempt: the next one is a retry's. */
  owesRetry: boolean
}

export interface WholeLane {
  name: string
  domain: string
  stream: Stream
  dueKeys: number
  round: number
  /** Rows it may have in the round still. */
  room: number
}

export interface OrderGroup {
  name: string
  route: RouteGroup
  lanes: Map<string, OrderLane>
  rings: Record<Stream, TurnRing<OrderLane>>
  deficit: number
  /** Part of a turn that bulk is owed. */
  bulkCredit: number
  /** It came before others that wait, and had no turn yet. */
  isNew: boolean
  round: number
  slots: number
  room: number
}

export type OrderPlaces = ReturnType<typeof createOrderPlaces>

export function createOrderPlaces() {
  const groups = new Map<string, OrderGroup>()
  const wholeLanes = new Map<string, WholeLane>()
  const dueKeys = new Map<string, DueKey>()
  const newcomers = createNewcomers(() => groups.size)
  const { rings, enter: enterRing, pause, resume } = createPausableRings(groups)

  function groupFor(key: QueueKey): OrderGroup {
    const name = groupName(key)
    const known = groups.get(name)
    if (known !== undefined) return known
    const group = newGroup(key, newcomers.come(name))
    groups.set(name, group)
    enterRing('all', group)
    return group
  }

  function laneFor(group: OrderGroup, { domain, stream }: QueueKey): OrderLane {
    const name = `${stream} ${domain}`
    const known = group.lanes.get(name)
    if (known !== undefined) return known
    const whole = wholeLanes.get(name) ?? { name, domain, stream, dueKeys: 0, round: 0, room: 0 }
    wholeLanes.set(name, whole)
    const lane: OrderLane = { group, stream, whole, first: null, retry: null, owesRetry: false }
    group.lanes.set(name, lane)
    group.rings[stream].add(lane)
    if (stream === 'transactional') enterRing('urgent', group)
    return lane
  }

  function enter(key: QueueKey, name: string): DueKey {
    const lane = laneFor(groupFor(key), key)
    const entry: DueKey = { name, key, due: 0, lane, round: 0, room: 0, ask: null }
    if (key.isRetry) lane.retry = entry
    else lane.first = entry
    lane.whole.dueKeys++
    dueKeys.set(name, entry)
    return entry
  }

  function leave({ name, lane, key }: DueKey): void {
    const { group, whole, stream } = lane
    dueKeys.delete(name)
    if (key.isRetry) lane.retry = null
    else lane.first = null
    if (--whole.dueKeys === 0) wholeLanes.delete(whole.name)
    if (lane.first !== null || lane.retry !== null) return
    group.lanes.delete(whole.name)
    group.rings[stream].remove(lane)
    if (group.rings.transactional.size() === 0) rings.urgent.remove(group)
    if (group.lanes.size > 0) return
    groups.delete(group.name)
    rings.all.remove(group)
    if (!group.isNew) newcomers.leave(group.name)
  }

  return {
    /** The key has so many rows due; 0 takes it out. */
    set(key: QueueKey, due: number): void {
      const name = keyName(key)
      const known = dueKeys.get(name)
      if (due > 0) (known ?? enter(key, name)).due = due
      else if (known !== undefined) leave(known)
    },
    leave,
    pause,
    resume,
    noteTurn(group: OrderGroup): void {
      group.isNew = false
      newcomers.turn()
    },
    rings,
    wholeLanes,
    size: () => dueKeys.size,
  }
}

/** A paused group keeps its place among the groups, and has none in the rings. `urgent`: with transactional mail. */
function createPausableRings(groups: ReadonlyMap<string, OrderGroup>) {
  const rings = { all: createTurnRing<OrderGroup>(), urgent: createTurnRing<OrderGroup>() }
  const paused = new Set<string>()

  return {
    rings,
    enter(ring: keyof typeof rings, group: OrderGroup): void {
      if (paused.has(group.name)) return
      if (group.isNew) rings[ring].addNext(group)
      else rings[ring].add(group)
    },
    pause(group: RouteGroup): void {
      const name = groupName(group)
      paused.add(name)
      const known = groups.get(name)
      if (known === undefined) return
      rings.all.remove(known)
      rings.urgent.remove(known)
    },
    resume(group: RouteGroup): void {
      const name = groupName(group)
      paused.delete(name)
      const known = groups.get(name)
      if (known === undefined) return
      rings.all.add(known)
      if (known.rings.transactional.size() > 0) rings.urgent.add(known)
    },
  }
}

function newGroup({ pool, route }: RouteGroup, isNew: boolean): OrderGroup {
  const rings = { transactional: createTurnRing<OrderLane>(), bulk: createTurnRing<OrderLane>() }
  const fresh = { deficit: 0, bulkCredit: 0, round: 0, slots: 0, room: 0 }
  return { name: groupName({ pool, route }), route: { pool, route }, lanes: new Map(), rings, isNew, ...fresh }
}

export function groupName({ pool, route }: RouteGroup): string {
  return `${pool} ${route}`
}

/** None of the parts has a space in it. */
export function keyName({ pool, route, domain, stream, isRetry }: QueueKey): string {
  return `${pool} ${route} ${domain} ${stream} ${isRetry ? 'retry' : 'first'}`
}

/**
 * Who is new in an order of turns, and goes before all that wait, for at most one turn in two. A member that left with
 * nothing to do and returns before the others had their turns is not new. Remembers as many as are in the order:
 * `size`.
 */
function createNewcomers(size: () => number) {
  /** After how many turns each one left; the earliest first. */
  const left = new Map<string, number>()
  let turns = 0
  let credit = 0

  const isLongAgo = (at: number): boolean => turns - at > size()

  return {
    /** It comes in; true: its turn is next. */
    come(name: string): boolean {
      const leftAt = left.get(name)
      if (credit < 1 || (leftAt !== undefined && !isLongAgo(leftAt))) return false
      credit--
      return true
    },
    leave(name: string): void {
      left.delete(name)
      left.set(name, turns)
      for (const [earliest, at] of left) {
        if (!isLongAgo(at)) break
        left.delete(earliest)
      }
    },
    turn(): void {
      turns++
      credit = Math.min(MOST_CREDIT, credit + CREDIT_PER_TURN)
    },
  }
}
