/**
 * In whose turn the queue is claimed: an index of the due keys, kept by the directory, that says what to ask for next.
 * The turns between groups, streams, lanes, first attempts and retries are those of delivery/README.md "Fairness".
 *
 * A round touches the groups and keys whose turn comes, at most each one that is due. Where no bulk mail may be claimed
 * it touches the groups with transactional mail alone; it asks nothing of a group before it has seen a lane that may
 * have more, for a full window with thousands of due groups is the usual case. No clock, no chance: the same calls give
 * the same asks. Never throws.
 */
import type { QueueKey } from '../../store/records/queue-records.ts'
import { createLaneRound } from './lane-round.ts'
import type { LaneRound, RoundRequest } from './lane-round.ts'
import { createOrderPlaces } from './order-places.ts'
import type { OrderGroup, KeyAsk, RouteGroup } from './order-places.ts'
import { takeTurns } from './turn-ring.ts'
import type { Taken } from './turn-ring.ts'

export interface FairOrder {
  /** The key has so many rows due, or thought to be due, now; 0 takes it out. What is asked for is subtracted. */
  set(key: QueueKey, due: number): void
  /** Nothing of these keys is asked for until `resume`; they keep their places and what they are owed. */
  pause(group: RouteGroup): void
  resume(group: RouteGroup): void
  /** Asks for one `claimDue`, in the order of turns, one for each key. */
  round(request: RoundRequest): KeyAsk[]
  /** Keys with due rows. */
  size(): number
}

/** Of five turns of a group with both streams, one is for bulk. */
const BULK_SHARE = 1 / 5
const NOTHING: Taken = { count: 0, wantsMore: false }

export function createFairOrder(): FairOrder {
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
      // What it had no use for is not saved up.
      group.deficit = isCutShort ? group.deficit - count : 0
      if (isCutShort) unfinished = group
      return { count, wantsMore: group.room > 0 && group.lanes.size > 0 }
    })
    return round.asks
  }

  const { set, pause, resume, size } = places
  return { set, pause, resume, size, round: (request) => (request.room > 0 ? runRound(request) : []) }
}

/** It has a lane that may have more, and its paths take some: that is asked last, since it costs the most. */
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
