/**
 * What the lanes get in one round of claims: how much each may have still, and what is asked of its keys, first
 * attempts and retries half each. Asks about each key and each lane once. Never throws. delivery/README.md "Fairness".
 */
import type { Stream } from '../../mail/message.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import type { DueKey, OrderGroup, KeyAsk, OrderLane, OrderPlaces, RouteGroup, WholeLane } from './order-places.ts'
import type { Taken } from './turn-ring.ts'

/** What a group takes in this round. */
export interface Capacity {
  /** Free connection slots of all its paths: its quantum. */
  slots: number
  /** Rows its paths take now, beyond what waits or is under way. 0: it is passed over. */
  room: number
}

export interface RoundRequest {
  /** Rows to ask for in all. */
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

export interface LaneRound {
  /** What is asked for so far. */
  asks: KeyAsk[]
  /** Some lane with bulk mail may have more. */
  isBulkOpen(): boolean
  hasOpenLane(group: OrderGroup): boolean
  /** One turn of a lane: at most `part` rows. */
  serve(lane: OrderLane, part: number): Taken
}

const NOTHING: Taken = { count: 0, wantsMore: false }

/** `number`: of the round; no other has it. */
export function createLaneRound(
  { wholeLanes, leave }: Pick<OrderPlaces, 'wholeLanes' | 'leave'>,
  request: RoundRequest,
  number: number,
): LaneRound {
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
    if (isAlone) return Infinity
    if (whole.round !== number) {
      whole.round = number
      whole.room = request.mostPerLane - request.heldOf(whole.domain, whole.stream)
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
    hasOpenLane({ lanes }) {
      for (const { whole } of lanes.values()) if (roomOfLane(whole) > 0) return true
      return false
    },
    serve(lane, part) {
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
