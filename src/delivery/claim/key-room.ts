/**
 * How many rows of a queue key could leave now, by the IPs of its pool, their paths and their allowance; or why none.
 *
 * Keys of one round do not count on the same allowance twice. Nothing here waits or throws. egress/README.md "Which
 * IP".
 */
import type { Egress } from '../../egress/egress.ts'
import type { Candidate } from '../../egress/ips/egress-ip.ts'
import type { Gate, Lane } from '../../egress/shaping/shaping.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import type { PathFacts, PathFactsMaker } from '../place/path-facts.ts'
import type { PathRoom } from '../place/paths.ts'
import type { ReadyWindow } from '../place/ready-window.ts'
import { allBusy, triedOut, type Closure } from '../place/take-rows.ts'
import type { KnownRoutes } from '../route/known-routes.ts'

export interface KeyRoomOptions {
  window: Pick<ReadyWindow, 'ofDomain'>
  egress: Pick<Egress, 'candidates'>
  gateOf: (facts: PathFacts, lane: Lane | null) => Gate
  routes: Pick<KnownRoutes, 'behind'>
  paths: Pick<PathRoom, 'roomOf' | 'freeSlots'>
  pathFacts: Pick<PathFactsMaker, 'of'>
}

/** What one key finds. A room of 0 without a closure: other keys of this round have taken what there was. */
interface KeyRoom {
  room: number
  closure: Closure | undefined
}

export type KeyRooms = ReturnType<typeof createKeyRooms>

/** For one round. `unreserved`: claimed first attempts without a path; each may take the allowance of any IP. */
export function createKeyRooms(options: KeyRoomOptions, unreserved: number) {
  const { window, egress, gateOf, routes, paths, pathFacts } = options
  const known = new Map<string, Candidate[]>()
  /** Allowance that keys of this round count on already, by IP. */
  const hopes = new Map<string, number>()

  function candidatesOf(
    { pool, stream, isRetry }: Pick<QueueKey, 'pool' | 'stream' | 'isRetry'>,
    isp: string,
  ): Candidate[] {
    const name = `${pool} ${stream} ${isp} ${isRetry}`
    const before = known.get(name)
    if (before !== undefined) return before
    const found = egress.candidates({ pool, stream, isp, isRetry }).toSorted((left, right) => left.tier - right.tier)
    known.set(name, found)
    return found
  }

  return {
    /** Rows of a key that could go now, at most about `wanted`. Without a lane: of any; nothing is counted on. */
    of(key: QueueKey, lane: Lane | null, wanted: number): KeyRoom {
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
        const add = Math.max(0, Math.min(pathRoom, ofLane, hope))
        if (add === 0 && hope <= 0) isOnlyForNow = true
        if (candidate.hope < Infinity && lane !== null) hopes.set(ip.address, (hopes.get(ip.address) ?? 0) + add)
        room += add
        if (room >= wanted) break
      }
      return { room, closure: room > 0 || isOnlyForNow ? undefined : (closure ?? NO_IP) }
    },
    /** Free connections of the paths that a first attempt may take, up to about `most`. */
    slotsOf({ pool, route }: Pick<QueueKey, 'pool' | 'route'>, most: number): number {
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

const NO_IP: Closure = { until: null, waitingFor: 'ip_paused', text: 'No IP of the pool can send it now.' }

function withoutHope({ ip, nextAt, waitingFor }: Candidate): Closure {
  const text = `The warmup of ${ip.address} allows no more for now.`
  return { until: nextAt, waitingFor: waitingFor ?? 'warmup_hour', text }
}

/** The one that ends first. One that only an event ends counts as the last. */
export function earlier(left: Closure | undefined, right: Closure): Closure {
  if (left === undefined) return right
  return (right.until ?? Infinity) < (left.until ?? Infinity) ? right : left
}
