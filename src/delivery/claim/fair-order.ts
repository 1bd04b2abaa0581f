/**
 * In whose turn the queue is claimed: an index of the due keys, kept by the directory, that says what to ask for next,
 * by the turns of delivery/README.md "Fairness". A round touches the groups and keys whose turn comes. It asks nothing
 * about a group before it has seen a lane that may have more: a full window with thousands of due groups is the usual
 * case. No clock, no chance: the same calls give the same asks.
 */
import type { Stream } from '../../mail/message.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import {
  createOrderPlaces,
  type DueKey,
  type KeyAsk,
  type OrderGroup,
  type OrderLane,
  type OrderPlaces,
  type RouteGroup,
  type WholeLane,
} from './order-places.ts'
import { takeTurns, type Taken } from './turn-ring.ts'

export interface Capacity {
  /** Free connection slots of all its paths: its quantum. */
  slots: number
  /** Rows its paths take now, beyond what waits or is under way. 0: it is passed over. */
  room: number
}

export interface RoundRequest {
  room: number
  /** Rows of one lane in the window, at most, while other lanes wait: half of `delivery.ready_window`. */
  mostPerLane: number
  /** Rows of the only lane in the window, at most: its hosts may hold them for long, and others may come. */
  mostAlone: number
  /** Rows of bulk mail in all; left out: as `room`. */
  roomForBulk?: number
  /** Rows of the lane that are in the window already. */
  heldOf(domain: string, stream: Stream): number
  /** Asked at most once a round for each group. */
  capacityOf(group: RouteGroup): Capacity
  /** Rows of this key that can go now (suspended lane, hope of allowance); asked at most once a round. */
  roomOf(key: QueueKey): number
}

export type FairOrder = ReturnType<typeof createFairOrder>

/** Of five turns of a group with both streams, one is for bulk. */
const BULK_SHARE = 1 / 5
const NOTHING: Taken = { count: 0, wantsMore: false }

export function createFairOrder() {
  const places = createOrderPlaces()
  /** The group whose turn was cut short by the end of the round's room. */
  let unfinished: OrderGroup | undefined
  let number = 0

  function runRound(request: RoundRequest): KeyAsk[] {
    const round = createLaneRound(places, request, ++number)
    const turns = round.isBulkOpen() ? places.rings.all : places.rings.urgent
    if (unfinished !== undefined) turns.startAt(unfinished)
    takeTurns(turns, request.room, (group, _part, left) => {
      if (!hasTurn(group, round, request, number)) {
        group.deficit = 0
        return NOTHING
      }
      places.noteTurn(group)
      const isContinued = unfinished === group && group.deficit >= 1
      unfinished = undefined
      if (!isContinued) group.deficit += Math.max(1, group.slots)
      const most = turns.size() === 1 ? group.room : Math.min(group.deficit, group.room)
      const count = serveStreams(group, Math.min(most, left), round.serve)
      group.room -= count
      const isCutShort = count === left && count < most
      // Only a turn that was cut short is owed; what a group has no use for is not saved up.
      group.deficit = isCutShort ? group.deficit - count : 0
      if (isCutShort) unfinished = group
      return { count, wantsMore: group.room > 0 && group.lanes.size > 0 }
    })
    return round.asks
  }

  return {
    /** The key has so many rows due, or thought to be due, now; 0 takes it out. What is asked for is subtracted. */
    set: places.set,
    /** Nothing of these keys is asked for until `resume`; they keep their places and what they are owed. */
    pause: places.pause,
    resume: places.resume,
    /** Asks for one `claimDue`, in the order of turns, one for each key. */
    round: (request: RoundRequest) => (request.room > 0 ? runRound(request) : []),
    /** Keys with due rows. */
    size: places.size,
  }
}

/** It has a lane that may have more, and its paths take rows. The paths are asked last: that costs the most. */
function hasTurn(group: OrderGroup, round: LaneRound, request: RoundRequest, number: number): boolean {
  if (!round.hasOpenLane(group)) return false
  if (group.round !== number) {
    const { slots, room } = request.capacityOf(group.route)
    group.round = number
    group.slots = slots
    group.room = room
  }
  return group.room > 0
}

/** Up to `amount` rows of a group, its streams by weight; how many there were. */
function serveStreams(group: OrderGroup, amount: number, serve: LaneRound['serve']): number {
  const { transactional, bulk } = group.rings
  if (bulk.size() === 0) return amount - takeTurns(transactional, amount, serve)
  if (transactional.size() === 0) return amount - takeTurns(bulk, amount, serve)
  group.bulkCredit += amount * BULK_SHARE
  const bulkAmount = Math.min(amount, Math.floor(group.bulkCredit))
  const notUsed = takeTurns(transactional, amount - bulkAmount, serve)
  const notTaken = takeTurns(bulk, bulkAmount + notUsed, serve)
  const left = notUsed > 0 ? notTaken : takeTurns(transactional, notTaken, serve)
  group.bulkCredit = Math.min(1, group.bulkCredit - bulkAmount)
  return amount - left
}

type LaneRound = ReturnType<typeof createLaneRound>

/** What the lanes get in one round. `number`: no other round has it. Asks about each key and each lane once. */
function createLaneRound({ wholeLanes, leave }: OrderPlaces, request: RoundRequest, number: number) {
  const asks: KeyAsk[] = []
  const isAlone = wholeLanes.size === 1

  function roomOfKey(entry: DueKey | null): number {
    if (entry === null) return 0
    if (entry.round !== number) {
      entry.round = number
      entry.room = request.roomOf(entry.key)
      entry.ask = null
    }
    return Math.min(entry.due, entry.room)
  }

  function roomOfLane(whole: WholeLane): number {
    if (whole.stream === 'bulk' && request.roomForBulk === 0) return 0
    if (whole.round !== number) {
      whole.round = number
      whole.room = (isAlone ? request.mostAlone : request.mostPerLane) - request.heldOf(whole.domain, whole.stream)
    }
    return Math.max(0, whole.room)
  }

  function ask(entry: DueKey | null, count: number): void {
    if (entry === null || count === 0) return
    if (entry.ask === null) asks.push((entry.ask = { key: entry.key, limit: 0 }))
    entry.ask.limit += count
    entry.room -= count
    entry.due -= count
    entry.lane.whole.room -= count
    if (entry.due === 0) leave(entry)
  }

  return {
    asks,
    isBulkOpen: () => [...wholeLanes.values()].some((whole) => whole.stream === 'bulk' && roomOfLane(whole) > 0),
    hasOpenLane({ lanes }: OrderGroup): boolean {
      for (const { whole } of lanes.values()) if (roomOfLane(whole) > 0) return true
      return false
    },
    /** One turn of a lane: at most `part` rows. */
    serve(lane: OrderLane, part: number): Taken {
      const most = Math.min(part, roomOfLane(lane.whole))
      if (most === 0) return NOTHING
      const { first, retry } = lane
      const firsts = roomOfKey(first)
      const retries = roomOfKey(retry)
      const half = lane.owesRetry ? Math.floor(most / 2) : Math.ceil(most / 2)
      const firstCount = Math.min(firsts, Math.max(half, most - retries))
      const retryCount = Math.min(retries, most - firstCount)
      if (firsts > 0 && retries > 0 && firstCount !== retryCount) lane.owesRetry = firstCount > retryCount
      ask(first, firstCount)
      ask(retry, retryCount)
      const count = firstCount + retryCount
      return { count, wantsMore: count < firsts + retries && roomOfLane(lane.whole) > 0 }
    },
  }
}
