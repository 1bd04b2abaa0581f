/**
 * What is claimed next: for each due queue key, how many rows could leave now, by the IPs of its pool, their paths and
 * their allowance; shared out in the fair order. A key of which nothing can go is closed with the reason, so that it
 * costs nothing until it may be otherwise.
 *
 * Only what the world says closes a key; a key that is merely behind others this time stays in its order. Nothing here
 * waits or throws. delivery/README.md "From the table to the wire" and "Fairness", egress/README.md "Which IP".
 */
import type { Candidate, IpRequest } from '../../egress/ips/egress-ip.ts'
import type { Egress } from '../../egress/egress.ts'
import type { Gate, Lane } from '../../egress/shaping/shaping.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import type { CaptureRoute } from '../place/capture-route.ts'
import type { FairOrder } from './fair-order.ts'
import type { Capacity } from './lane-round.ts'
import type { KeyAsk, RouteGroup } from './order-places.ts'
import type { KnownRoutes } from '../route/known-routes.ts'
import type { PathFacts, PathFactsMaker } from '../place/path-facts.ts'
import type { PathRoom } from '../place/paths.ts'
import type { QueueDirectory } from './queue-directory.ts'
import type { Closure } from '../place/take-rows.ts'
import type { ReadyWindow } from '../place/ready-window.ts'

export interface ClaimRoundOptions {
  directory: Pick<QueueDirectory, 'close' | 'closeGroup' | 'dueOf' | 'find'>
  order: Pick<FairOrder, 'round'>
  window: Pick<ReadyWindow, 'room' | 'roomForBulk' | 'ofLane' | 'ofDomain'>
  egress: Pick<Egress, 'candidates'>
  gateOf: (facts: PathFacts, lane: Lane | null) => Gate
  routes: Pick<KnownRoutes, 'behind'>
  paths: Pick<PathRoom, 'roomOf' | 'freeSlots'>
  pathFacts: Pick<PathFactsMaker, 'of'>
  capture: CaptureRoute
  /** Claimed rows that have no path yet. */
  placing: { of(group: RouteGroup): number; firstAttempts(): number }
  readyWindow: () => number
}

/**
 * Rows of one claim, which others' commits wait for: some 4 ms of the store (store/README.md "Verbs and transactions":
 * a group has 5).
 */
const MOST_PER_CLAIM = 150

/** What one key finds. `closure` undefined with a room of 0: only for now. */
interface KeyRoom {
  room: number
  closure: Closure | undefined
}

export interface ClaimRound {
  /** For one `claimDue`. */
  asks(): KeyAsk[]
}

export function createClaimRound(options: ClaimRoundOptions): ClaimRound {
  const { directory, order, window, egress, gateOf, routes, paths, pathFacts, capture, placing } = options
  let candidates = new Map<string, Candidate[]>()
  /** Allowance that keys of this round count on already, by IP. */
  let hopes = new Map<string, number>()
  /** Claimed first attempts without a path: each may take the allowance of any IP. */
  let unreserved = 0
  /** What was found closed; the directory is told after the round, since that changes the fair order. */
  let closures: (() => void)[] = []

  function candidatesOf(request: Pick<QueueKey, 'pool' | 'stream' | 'isRetry'> & Pick<IpRequest, 'isp'>): Candidate[] {
    const { pool, stream, isp, isRetry } = request
    const name = `${pool} ${stream} ${isp} ${isRetry}`
    const known = candidates.get(name)
    if (known !== undefined) return known
    const found = egress.candidates({ pool, stream, isp, isRetry }).toSorted((left, right) => left.tier - right.tier)
    candidates.set(name, found)
    return found
  }

  /** Rows of a key that could go now, at most about `wanted`. */
  function examine(key: QueueKey, lane: Lane | null, wanted: number): KeyRoom {
    const provider = routes.behind(key.route)
    const found = candidatesOf({ ...key, isp: provider.isp })
    let room = 0
    let closure: Closure | undefined
    let isOnlyForNow = false
    let mayOverflow = true
    for (const candidate of found) {
      const { ip, tier } = candidate
      if (tier === 3 && !mayOverflow) break
      if (candidate.hope <= 0) {
        closure = earlier(closure, withoutHope(candidate))
        continue
      }
      const hope = candidate.hope - (hopes.get(ip.address) ?? 0) - (key.isRetry ? 0 : unreserved)
      const facts = pathFacts.of(ip, provider)
      const gate = gateOf(facts, lane)
      if (gate.kind === 'closed') {
        closure = earlier(closure, gate)
        if (tier === 2 && gate.waitingFor !== 'suspension') mayOverflow = false
        continue
      }
      if (tier === 2) mayOverflow = false
      const pathRoom = paths.roomOf(facts, gate, key.stream === 'transactional')
      const ofLane = lane === null ? Infinity : gate.mostOfLane - window.ofDomain(key.pool, key.route, lane.domain)
      if (pathRoom === 0 || ofLane <= 0) closure = earlier(closure, busy(gate.mostUnderWay, ofLane, provider.isp))
      const add = Math.max(0, Math.min(pathRoom, ofLane, hope))
      if (add === 0 && hope <= 0) isOnlyForNow = true
      if (candidate.hope < Infinity && lane !== null) hopes.set(ip.address, (hopes.get(ip.address) ?? 0) + add)
      room += add
      if (room >= wanted) break
    }
    if (room > 0 || isOnlyForNow) return { room, closure: undefined }
    return { room, closure: closure ?? NO_IP }
  }

  function capacityOf(group: RouteGroup): Capacity {
    if (group.route === capture.facts.route) return captureCapacity(true)
    const provider = routes.behind(group.route)
    let closure: Closure | undefined
    let room = 0
    const seen = new Set<string>()
    for (const key of directory.dueOf(group)) {
      const kind = `${key.stream} ${key.isRetry}`
      if (seen.has(kind)) continue
      seen.add(kind)
      const found = examine(key, null, MOST_PER_CLAIM)
      room = Math.max(room, found.room)
      closure = found.closure === undefined ? closure : earlier(closure, found.closure)
    }
    if (room === 0 && closure !== undefined) {
      const found = closure
      closures.push(() => directory.closeGroup(group, found))
    }
    const left = Math.max(0, room - placing.of(group))
    return { room: left, slots: left === 0 ? 0 : slotsOf(group, provider.isp) }
  }

  /** Free connections of the paths a first attempt may take. */
  function slotsOf(group: RouteGroup, isp: string): number {
    const provider = routes.behind(group.route)
    const found = candidatesOf({ pool: group.pool, stream: 'transactional', isp, isRetry: false })
    let slots = 0
    for (const { ip } of found) {
      const facts = pathFacts.of(ip, provider)
      const gate = gateOf(facts, null)
      if (gate.kind === 'open') slots += paths.freeSlots(facts, gate)
      if (slots >= MOST_PER_CLAIM) break
    }
    return Math.max(1, slots)
  }

  function captureCapacity(isUrgent: boolean): Capacity {
    const gate = gateOf(capture.facts, null)
    if (gate.kind === 'closed') return { room: 0, slots: 0 }
    const room = paths.roomOf(capture.facts, gate, isUrgent)
    return { room, slots: Math.max(1, paths.freeSlots(capture.facts, gate)) }
  }

  function roomOf(key: QueueKey): number {
    const most = key.stream === 'bulk' ? window.roomForBulk() : Infinity
    if (most === 0) return 0
    if (key.route === capture.facts.route) return Math.min(most, captureCapacity(key.stream === 'transactional').room)
    const { room, closure } = examine(key, key, directory.find(key)?.waiting ?? 1)
    if (closure !== undefined) closures.push(() => directory.close(key, closure))
    return Math.min(most, room)
  }

  return {
    asks() {
      candidates = new Map()
      hopes = new Map()
      unreserved = placing.firstAttempts()
      closures = []
      const asks = order.round({
        room: Math.min(window.room(), MOST_PER_CLAIM),
        mostPerLane: Math.max(1, Math.floor(options.readyWindow() / 2)),
        roomForBulk: window.roomForBulk(),
        heldOf: window.ofLane,
        capacityOf,
        roomOf,
      })
      for (const close of closures) close()
      return asks
    },
  }
}

const NO_IP: Closure = { until: null, waitingFor: 'ip_paused', text: 'No IP of the pool can send it now.' }

function withoutHope({ ip, nextAt, waitingFor }: Candidate): Closure {
  const text = `The warmup of ${ip.address} allows no more for now.`
  return { until: nextAt, waitingFor: waitingFor ?? 'warmup_hour', text }
}

function busy(mostUnderWay: number, ofLane: number, isp: string): Closure {
  if (mostUnderWay > 1 && ofLane > 0) {
    return { until: null, waitingFor: 'connections', text: `All connections to ${isp} are in use.` }
  }
  const text = `Mail to ${isp} was suspended and is being tried out again, one message at a time.`
  return { until: null, waitingFor: 'suspension', text }
}

/** The one that ends first; what only an event ends is ended by it anyway. */
function earlier(left: Closure | undefined, right: Closure): Closure {
  if (left === undefined) return right
  return (right.until ?? Infinity) < (left.until ?? Infinity) ? right : left
}
