/**
 * In whose turn the queue is claimed: an index of the due keys, kept by the directory, that says what to ask for next.
 *
 * | between                  | turns                                                                              |
 * | ------------------------ | ---------------------------------------------------------------------------------- |
 * | groups (pool, route)     | deficit round robin, quantum = free connection slots of the group's paths          |
 * | streams of a group       | transactional 4, bulk 1; what one does not use, the other gets                     |
 * | lanes of a stream        | equal: a lane is a sending domain with its stream                                  |
 * | first attempts, retries  | half each; what one does not use, the other gets                                   |
 * | one lane, all others     | at most half of the window, while others wait                                      |
 * | groups that come anew    | next, before all that wait, but for one turn in two; not those that had a turn     |
 * |                          | lately and came back: thousands of others hold up nobody who has a first message   |
 *
 * Keys at rest cost nothing: a round touches the groups and keys whose turn comes, at most each one that is due. Where
 * no bulk mail may be claimed it touches the groups with transactional mail alone, and of any group it asks nothing
 * before it has seen a lane that may have more: with thousands of due groups, a full window is the usual case. No
 * clock, no chance: the same calls give the same asks. Never throws. The size of a message is not known before it is
 * claimed, so each costs 1. delivery/README.md "Fairness".
 */
import type { Stream } from '../../mail/message.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import { createNewcomers } from './newcomers.ts'
import { createTurnRing, takeTurns } from './turn-ring.ts'
import type { Taken, TurnRing } from './turn-ring.ts'

/** Keys that share paths. */
export interface RouteGroup {
  pool: string
  route: string
}

/** What a group takes in this round. */
export interface Capacity {
  /** Free connection slots of all its paths: its quantum. */
  slots: number
  /** Rows its paths take now, beyond what waits or is under way. 0: it is passed over. */
  room: number
}

export interface RoundRequest {
  /** Rows to ask for in all: what is free of the ready window, about 500 at most. */
  room: number
  /** Rows of one lane in the window, at most, while other lanes wait: half of `delivery.ready_window`. */
  mostPerLane: number
  /** Rows of bulk mail in all; left out: as `room`. */
  roomForBulk?: number
  /** Rows of the lane that are in the window already. */
  heldOf(domain: string, stream: Stream): number
  /** Asked at most once a round for each group. */
  capacityOf(group: RouteGroup): Capacity
  /** Rows of this key that can go now (suspended lane, hope of allowance); asked at most once a round. */
  roomOf(key: QueueKey): number
}

export interface Ask {
  key: QueueKey
  limit: number
}

export interface FairOrder {
  /** The key has so many rows due, or thought to be due, now; 0 takes it out. What is asked for is subtracted. */
  set(key: QueueKey, due: number): void
  /** Nothing of these keys is asked for until `resume`; they keep their places and what they are owed. */
  pause(group: RouteGroup): void
  resume(group: RouteGroup): void
  /** Asks for one `claimDue`, in the order of turns, one for each key. */
  round(request: RoundRequest): Ask[]
  /** Keys with due rows. */
  size(): number
}

/** Of five turns of a group with both streams, one is for bulk. */
const BULK_SHARE = 1 / 5
const NOTHING: Taken = { count: 0, wantsMore: false }

interface DueKey {
  name: string
  key: QueueKey
  due: number
  lane: Lane
  /** Of the round with number `round`. */
  round: number
  room: number
  ask: Ask | null
}

/** A lane in one group. */
interface Lane {
  group: Group
  stream: Stream
  /** What the lane has in all groups. */
  whole: WholeLane
  first: DueKey | null
  retry: DueKey | null
  /** An odd turn was given to a first attempt: the next one is a retry's. */
  owesRetry: boolean
}

interface WholeLane {
  name: string
  domain: string
  stream: Stream
  dueKeys: number
  round: number
  /** Rows it may have in the round still. */
  room: number
}

interface Group {
  name: string
  route: RouteGroup
  lanes: Map<string, Lane>
  rings: Record<Stream, TurnRing<Lane>>
  deficit: number
  /** Part of a turn that bulk is owed. */
  bulkCredit: number
  /** It came before others that wait, and had no turn yet. */
  isNew: boolean
  round: number
  slots: number
  room: number
}

export function createFairOrder(): FairOrder {
  const groups = new Map<string, Group>()
  const newcomers = createNewcomers(() => groups.size)
  const paused = new Set<string>()
  const ring = createTurnRing<Group>()
  /** Those of them with transactional mail. */
  const urgentRing = createTurnRing<Group>()
  const dueKeys = new Map<string, DueKey>()
  const wholeLanes = new Map<string, WholeLane>()
  /** The group whose turn was cut short by the end of the round's room. */
  let unfinished: Group | undefined
  let round = 0

  function enter(key: QueueKey, name: string): DueKey {
    const lane = laneFor(groupFor(key), key)
    const entry: DueKey = { name, key, due: 0, lane, round: 0, room: 0, ask: null }
    if (key.isRetry) lane.retry = entry
    else lane.first = entry
    lane.whole.dueKeys++
    dueKeys.set(name, entry)
    return entry
  }

  function groupFor({ pool, route }: QueueKey): Group {
    const name = groupName({ pool, route })
    const known = groups.get(name)
    if (known !== undefined) return known
    const rings = { transactional: createTurnRing<Lane>(), bulk: createTurnRing<Lane>() }
    const group: Group = {
      name,
      route: { pool, route },
      lanes: new Map(),
      rings,
      deficit: 0,
      bulkCredit: 0,
      isNew: false,
      round: 0,
      slots: 0,
      room: 0,
    }
    groups.set(name, group)
    group.isNew = newcomers.come(name)
    if (!paused.has(name)) enterRing(ring, group)
    return group
  }

  function laneFor(group: Group, { domain, stream }: QueueKey): Lane {
    const name = `${stream} ${domain}`
    const known = group.lanes.get(name)
    if (known !== undefined) return known
    const whole = wholeLanes.get(name) ?? { name, domain, stream, dueKeys: 0, round: 0, room: 0 }
    wholeLanes.set(name, whole)
    const lane: Lane = { group, stream, whole, first: null, retry: null, owesRetry: false }
    group.lanes.set(name, lane)
    group.rings[stream].add(lane)
    if (stream === 'transactional' && !paused.has(group.name)) enterRing(urgentRing, group)
    return lane
  }

  function leave(entry: DueKey): void {
    const { name, lane, key } = entry
    const { group, whole } = lane
    dueKeys.delete(name)
    if (key.isRetry) lane.retry = null
    else lane.first = null
    if (--whole.dueKeys === 0) wholeLanes.delete(whole.name)
    if (lane.first !== null || lane.retry !== null) return
    group.lanes.delete(whole.name)
    group.rings[lane.stream].remove(lane)
    if (group.rings.transactional.size() === 0) urgentRing.remove(group)
    if (group.lanes.size > 0) return
    groups.delete(group.name)
    ring.remove(group)
    if (!group.isNew) newcomers.leave(group.name)
  }

  function runRound(request: RoundRequest): Ask[] {
    const asks: Ask[] = []
    const isAlone = wholeLanes.size === 1
    round++

    function roomOfKey(entry: DueKey): number {
      if (entry.round !== round) {
        entry.round = round
        entry.room = request.roomOf(entry.key)
        entry.ask = null
      }
      return Math.min(entry.due, entry.room)
    }

    function roomOfLane(whole: WholeLane): number {
      if (whole.stream === 'bulk' && request.roomForBulk === 0) return 0
      if (isAlone) return Infinity
      if (whole.round !== round) {
        whole.round = round
        whole.room = request.mostPerLane - request.heldOf(whole.domain, whole.stream)
      }
      return Math.max(0, whole.room)
    }

    const isOpen = (whole: WholeLane): boolean => roomOfLane(whole) > 0
    const isBulkOpen = [...wholeLanes.values()].some((whole) => whole.stream === 'bulk' && isOpen(whole))
    const turns = isBulkOpen ? ring : urgentRing

    function hasOpenLane(group: Group): boolean {
      for (const { whole } of group.lanes.values()) if (isOpen(whole)) return true
      return false
    }

    function ask(entry: DueKey, count: number): void {
      if (count === 0) return
      if (entry.ask === null) asks.push((entry.ask = { key: entry.key, limit: 0 }))
      entry.ask.limit += count
      entry.room -= count
      entry.due -= count
      entry.lane.whole.room -= count
      if (entry.due === 0) leave(entry)
    }

    function serveLane(lane: Lane, part: number): Taken {
      const most = Math.min(part, roomOfLane(lane.whole))
      if (most === 0) return NOTHING
      const { first, retry } = lane
      const firsts = first === null ? 0 : roomOfKey(first)
      const retries = retry === null ? 0 : roomOfKey(retry)
      const half = lane.owesRetry ? Math.floor(most / 2) : Math.ceil(most / 2)
      const firstCount = Math.min(firsts, Math.max(half, most - retries))
      const retryCount = Math.min(retries, most - firstCount)
      if (firsts > 0 && retries > 0 && firstCount !== retryCount) lane.owesRetry = firstCount > retryCount
      if (first !== null) ask(first, firstCount)
      if (retry !== null) ask(retry, retryCount)
      const count = firstCount + retryCount
      return { count, wantsMore: count < firsts + retries && roomOfLane(lane.whole) > 0 }
    }

    /** Up to `amount` rows of a group, its streams by weight; how many there were. */
    function serveStreams(group: Group, amount: number): number {
      const { transactional, bulk } = group.rings
      if (bulk.size() === 0) return amount - takeTurns(transactional, amount, serveLane)
      if (transactional.size() === 0) return amount - takeTurns(bulk, amount, serveLane)
      group.bulkCredit += amount * BULK_SHARE
      const bulkAmount = Math.min(amount, Math.floor(group.bulkCredit))
      const notUsed = takeTurns(transactional, amount - bulkAmount, serveLane)
      const notTaken = takeTurns(bulk, bulkAmount + notUsed, serveLane)
      const left = notUsed > 0 ? notTaken : takeTurns(transactional, notTaken, serveLane)
      group.bulkCredit = Math.min(1, group.bulkCredit - bulkAmount)
      return amount - left
    }

    function serveGroup(group: Group, _part: number, left: number): Taken {
      if (!hasOpenLane(group)) {
        group.deficit = 0
        return NOTHING
      }
      if (group.round !== round) {
        const { slots, room } = request.capacityOf(group.route)
        group.round = round
        group.slots = slots
        group.room = room
      }
      if (group.room <= 0) {
        group.deficit = 0
        return NOTHING
      }
      if (group.isNew) group.isNew = false
      newcomers.turn()
      const isContinued = unfinished === group
      unfinished = undefined
      if (!isContinued || group.deficit < 1) group.deficit += Math.max(1, group.slots)
      const most = turns.size() === 1 ? group.room : Math.min(group.deficit, group.room)
      const count = serveStreams(group, Math.min(most, left))
      group.room -= count
      const isCutShort = count === left && count < most
      // What it had no use for is not saved up.
      group.deficit = isCutShort ? group.deficit - count : 0
      if (isCutShort) unfinished = group
      return { count, wantsMore: group.room > 0 && group.lanes.size > 0 }
    }

    if (unfinished !== undefined) turns.startAt(unfinished)
    takeTurns(turns, request.room, serveGroup)
    return asks
  }

  return {
    set(key, due) {
      const name = nameOf(key)
      const known = dueKeys.get(name)
      if (due > 0) (known ?? enter(key, name)).due = due
      else if (known !== undefined) leave(known)
    },
    pause(group) {
      const name = groupName(group)
      paused.add(name)
      const known = groups.get(name)
      if (known === undefined) return
      ring.remove(known)
      urgentRing.remove(known)
    },
    resume(group) {
      const name = groupName(group)
      paused.delete(name)
      const known = groups.get(name)
      if (known === undefined) return
      ring.add(known)
      if (known.rings.transactional.size() > 0) urgentRing.add(known)
    },
    round: (request) => (request.room > 0 ? runRound(request) : []),
    size: () => dueKeys.size,
  }
}

function enterRing(ring: TurnRing<Group>, group: Group): void {
  if (group.isNew) ring.addNext(group)
  else ring.add(group)
}

function groupName({ pool, route }: RouteGroup): string {
  return `${pool} ${route}`
}

function nameOf({ pool, route, domain, stream, isRetry }: QueueKey): string {
  return `${pool} ${route} ${domain} ${stream} ${isRetry ? 'retry' : 'first'}`
}
