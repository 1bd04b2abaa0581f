/**
 * One claim: for each due queue key, how many rows could leave now, shared out in the fair order, and asked for in one
 * verb. Only what the world says closes a key, with the reason, so that it costs nothing until that may have changed;
 * one that is merely behind others this time stays in its order. `claim` rejects when the store does, and then every
 * key may be asked for again. delivery/README.md "From the table to the wire" and "Fairness".
 */
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { Egress } from '../../egress/egress.ts'
import type { Candidate } from '../../egress/ips/egress-ip.ts'
import type { Gate, Lane } from '../../egress/shaping/shaping.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import type { Store } from '../../store/store.ts'
import { CAPTURE_GATE, type CaptureRoute, type PathFacts, type PathFactsMaker } from '../place/path-facts.ts'
import type { PathRoom } from '../place/paths.ts'
import { createCounts, type ReadyWindow } from '../place/ready-window.ts'
import { allBusy, triedOut, type Closure } from '../place/take-rows.ts'
import type { KnownRoutes } from '../route/route-message.ts'
import type { Capacity, FairOrder } from './fair-order.ts'
import { keyName, type KeyAsk, type RouteGroup } from './order-places.ts'
import type { QueueDirectory } from './queue-directory.ts'

/** What the parts of claiming stand on. */
export interface ClaimParts {
  store: Pick<Store, 'claimDue' | 'queueKeys' | 'problem' | 'refusal'>
  clock: Clock
  logger: Logger
  directory: QueueDirectory
  order: FairOrder
  window: ReadyWindow
  egress: Egress
  gateOf: (facts: PathFacts, lane: Lane | null) => Gate
  routes: KnownRoutes
  paths: PathRoom
  pathFacts: PathFactsMaker
  capture: CaptureRoute
  readyWindow: () => number
  hold: (messages: readonly ClaimedMessage[]) => void
  lease: () => { epoch: number; leaseUntil: number }
  onEvents: () => void
  /** See DispatcherOptions. */
  hasOthers: () => boolean
}

/**
 * Rows of one claim, some 4 ms of the store; others' commits wait so long (store/README.md "Verbs and transactions").
 */
const MOST_PER_CLAIM = 150
/** Rows of one route that is not known to answer. */
const MOST_UNKNOWN = 10
/** Ready windows, of the two that are held in all. */
const WINDOWS_ALONE = 1.75
/** Of the ready window, for the rows of all such routes: half of what one lane may have, which may have other mail. */
const SHARE_OF_UNKNOWN = 1 / 4
const NO_IP: Closure = { until: null, waitingFor: 'ip_paused', text: 'No IP of the pool can send it now.' }

/** Claimed rows that have no path yet. */
interface Placing {
  of(group: RouteGroup): number
  byRoute(): Iterable<[route: string, count: number]>
  firstAttempts(): number
}

export function createClaimRound(options: ClaimParts, placing: Placing) {
  const { directory, order, window, paths, capture } = options

  function capacityOf(group: RouteGroup, rooms: KeyRooms, unknown: UnknownRoom, closures: (() => void)[]): Capacity {
    if (group.route === capture.facts.route) {
      const slots = Math.max(1, paths.freeSlots(capture.facts, CAPTURE_GATE))
      return { room: paths.roomOf(capture.facts, CAPTURE_GATE, true), slots }
    }
    const most = unknown.of(group)
    if (most === 0) return { room: 0, slots: 0 }
    let closure: Closure | undefined
    let room = 0
    let due = 0
    const seen = new Set<string>()
    for (const key of directory.dueOf(group)) {
      due += key.waiting
      const kind = `${key.stream} ${key.isRetry}`
      if (seen.has(kind)) continue
      seen.add(kind)
      const found = rooms.of(key, null, MOST_PER_CLAIM)
      room = Math.max(room, found.room)
      closure = found.closure === undefined ? closure : earlier(closure, found.closure)
    }
    if (room === 0 && closure !== undefined) {
      const found = closure
      closures.push(() => directory.closeGroup(group, found))
    }
    const left = Math.min(Math.max(0, room - placing.of(group)), most)
    unknown.take(group, Math.min(left, due))
    return { room: left, slots: left === 0 ? 0 : rooms.slotsOf(group, MOST_PER_CLAIM) }
  }

  function roomOf(key: QueueKey, rooms: KeyRooms, closures: (() => void)[]): number {
    const most = key.stream === 'bulk' ? window.roomForBulk() : Infinity
    if (most === 0) return 0
    if (key.route === capture.facts.route) {
      return Math.min(most, paths.roomOf(capture.facts, CAPTURE_GATE, key.stream === 'transactional'))
    }
    const { room, closure } = rooms.of(key, key, directory.find(key)?.waiting ?? 1)
    if (closure !== undefined) closures.push(() => directory.close(key, closure))
    return Math.min(most, room)
  }

  return {
    asks(): KeyAsk[] {
      const rooms = createKeyRooms(options, placing.firstAttempts())
      const unknown = createUnknownRoom(options, placing)
      /** The directory is told after the round: it changes the fair order. */
      const closures: (() => void)[] = []
      const asks = order.round({
        room: Math.min(window.room(), MOST_PER_CLAIM),
        mostPerLane: Math.max(1, Math.floor(options.readyWindow() / 2)),
        mostAlone: Math.max(1, Math.floor(options.readyWindow() * WINDOWS_ALONE)),
        roomForBulk: window.roomForBulk(),
        heldOf: window.ofLane,
        capacityOf: (group) => capacityOf(group, rooms, unknown, closures),
        roomOf: (key) => roomOf(key, rooms, closures),
      })
      for (const close of closures) close()
      return asks
    },
    claim: createClaim(options),
  }
}

function createClaim({ store, clock, directory, hold, lease, onEvents }: ClaimParts) {
  return async (asks: KeyAsk[]): Promise<ClaimedMessage[]> => {
    const asked = asks.map(({ key, limit }) => ({ key, limit, from: directory.beginClaim(key) }))
    try {
      const request = { now: clock.now(), ...lease(), asks: asked }
      const { messages, suppressed, earliestAt, firstAt } = await store.claimDue(request)
      const claimed = countByKey(messages)
      asks.forEach(({ key }, index) => {
        directory.endClaim(key, claimed.get(keyName(key)) ?? 0, earliestAt[index] ?? null, firstAt[index] ?? null)
      })
      // An older claim may still have such a row in hand: its lease lapsed, or its return was not heard yet. What
      // comes of the older claim is refused by the store, its dot mark too.
      hold(messages)
      if (suppressed > 0) onEvents()
      return messages
    } catch (thrown) {
      for (const { key } of asks) directory.failClaim(key)
      throw thrown
    }
  }
}

function countByKey(messages: readonly ClaimedMessage[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const message of messages) {
    const name = keyName({ ...message, isRetry: message.attempts > 0 })
    counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  return counts
}

type UnknownRoom = ReturnType<typeof createUnknownRoom>

/**
 * How many rows may wait for the DNS of routes that are not known to answer: those of a hoster whose DNS is silent would
 * fill the window. For one round, in which a group is asked about once.
 */
function createUnknownRoom({ routes, capture, readyWindow }: ClaimParts, placing: Placing) {
  const isUnknown = (route: string): boolean => route !== capture.facts.route && !routes.isAnswering(route)
  let left = Math.max(1, Math.floor(readyWindow() * SHARE_OF_UNKNOWN))
  for (const [route, count] of placing.byRoute()) if (isUnknown(route)) left -= count
  return {
    of: (group: RouteGroup): number =>
      isUnknown(group.route) ? Math.max(0, Math.min(left, MOST_UNKNOWN - placing.of(group))) : Infinity,
    take({ route }: RouteGroup, count: number): void {
      if (isUnknown(route)) left -= count
    },
  }
}

type KeyRooms = ReturnType<typeof createKeyRooms>

/**
 * How many rows of a key could leave now, by the IPs of its pool, their paths and their allowance (egress/README.md
 * "Which IP"). For one round: its keys do not count on the same allowance twice, nor on the same share of a domain that
 * is tried out. `unreserved`: claimed first attempts without a path; each may take the allowance of any IP.
 */
function createKeyRooms(options: ClaimParts, unreserved: number) {
  const { window, egress, gateOf, routes, paths, pathFacts } = options
  const known = new Map<string, Candidate[]>()
  /** Allowance that keys of this round count on already, by IP. */
  const hopes = new Map<string, number>()
  /** Rows of this round, by sending domain that is tried out: over all its keys and IPs. */
  const triedNow = createCounts()

  function candidatesOf({ pool, stream, isRetry }: Omit<QueueKey, 'route' | 'domain'>, isp: string): Candidate[] {
    const name = `${pool} ${stream} ${isp} ${isRetry}`
    const before = known.get(name)
    if (before !== undefined) return before
    const found = egress.candidates({ pool, stream, isp, isRetry }).toSorted((left, right) => left.tier - right.tier)
    known.set(name, found)
    return found
  }

  return {
    /**
     * At most about `wanted`, or why none. Without a lane: of any; nothing is counted on. A room of 0 without a
     * closure: other keys of this round have taken what there was.
     */
    of(key: QueueKey, lane: Lane | null, wanted: number): { room: number; closure: Closure | undefined } {
      const provider = routes.behind(key.route)
      let room = 0
      let closure: Closure | undefined
      let isOnlyForNow = false
      let mayOverflow = true
      for (const candidate of candidatesOf(key, provider.isp)) {
        const { ip, tier } = candidate
        if (tier === 3 && !mayOverflow) break
        if (candidate.hope <= 0) {
          closure = earlier(closure, withoutHope(candidate))
          continue
        }
        const hope = candidate.hope - (hopes.get(ip.address) ?? 0) - (key.isRetry ? 0 : unreserved)
        const facts = pathFacts.of(ip, provider)
        const gate = gateOf(facts, lane)
        // Mail overflows to another pool only while suspensions close the warmed IPs of its own.
        if (tier === 2 && (gate.kind === 'open' || gate.waitingFor !== 'suspension')) mayOverflow = false
        if (gate.kind === 'closed') {
          closure = earlier(closure, gate)
          continue
        }
        const pathRoom = paths.roomOf(facts, gate, key.stream === 'transactional')
        const ofLane = lane === null ? Infinity : gate.mostOfLane - window.ofDomain(key.pool, key.route, lane.domain)
        if (pathRoom === 0 || ofLane <= 0) {
          const isTriedOut = gate.mostUnderWay <= 1 || ofLane <= 0
          closure = earlier(closure, { until: null, ...(isTriedOut ? triedOut : allBusy)(provider.isp) })
        }
        const domain = `${key.pool} ${key.route} ${key.domain}`
        const leftOfLane = ofLane - triedNow.of(domain)
        const add = Math.max(0, Math.min(pathRoom, leftOfLane, hope))
        if (add === 0 && (hope <= 0 || (ofLane > 0 && leftOfLane <= 0))) isOnlyForNow = true
        if (ofLane < Infinity) triedNow.add(domain, add)
        if (candidate.hope < Infinity && lane !== null) hopes.set(ip.address, (hopes.get(ip.address) ?? 0) + add)
        room += add
        if (room >= wanted) break
      }
      return { room, closure: room > 0 || isOnlyForNow ? undefined : (closure ?? NO_IP) }
    },
    /** Free connections of the paths that a first attempt may take, up to about `most`. */
    slotsOf({ pool, route }: RouteGroup, most: number): number {
      const provider = routes.behind(route)
      let slots = 0
      for (const { ip } of candidatesOf({ pool, stream: 'transactional', isRetry: false }, provider.isp)) {
        const facts = pathFacts.of(ip, provider)
        const gate = gateOf(facts, null)
        if (gate.kind === 'open') slots += paths.freeSlots(facts, gate)
        if (slots >= most) break
      }
      return Math.max(1, slots)
    },
  }
}

function withoutHope({ ip, nextAt, waitingFor }: Candidate): Closure {
  const text = `The warmup of ${ip.address} allows no more for now.`
  return { until: nextAt, waitingFor: waitingFor ?? 'warmup_hour', text }
}

/** The one that ends first. One that only an event ends counts as the last. */
function earlier(left: Closure | undefined, right: Closure): Closure {
  if (left === undefined) return right
  return (right.until ?? Infinity) < (left.until ?? Infinity) ? right : left
}
