/**
 * One claim: for each due queue key, how many rows could leave now (`key-room.ts`), shared out in the fair order, and
 * asked for in one verb. A key of which nothing can go is closed with the reason, so that it costs nothing until that
 * may have changed.
 *
 * Only what the world says closes a key; a key that is merely behind others this time stays in its order. `asks` never
 * throws; `claim` rejects when the store does, and then every key may be asked for again. delivery/README.md "From the
 * table to the wire" and "Fairness".
 */
import type { Clock } from '../../base/clock.ts'
import type { QueueKey } from '../../store/records/queue-records.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'
import type { Store } from '../../store/store.ts'
import { CAPTURE_GATE, type CaptureRoute } from '../place/capture-route.ts'
import type { ReadyWindow } from '../place/ready-window.ts'
import type { Closure } from '../place/take-rows.ts'
import type { Capacity, FairOrder } from './fair-order.ts'
import { createKeyRooms, earlier, type KeyRoomOptions, type KeyRooms } from './key-room.ts'
import { keyName, type KeyAsk, type RouteGroup } from './order-places.ts'
import type { QueueDirectory } from './queue-directory.ts'

interface ClaimRoundOptions extends KeyRoomOptions {
  store: Pick<Store, 'claimDue'>
  clock: Clock
  directory: QueueDirectory
  order: Pick<FairOrder, 'round'>
  window: ReadyWindow
  capture: CaptureRoute
  /** Claimed rows that have no path yet. */
  placing: { of(group: RouteGroup): number; firstAttempts(): number }
  readyWindow: () => number
  hold: (messages: readonly ClaimedMessage[]) => void
  /** What every claim shows. */
  lease: () => { epoch: number; leaseUntil: number }
}

/**
 * Rows of one claim, which others' commits wait for: some 4 ms of the store (store/README.md "Verbs and transactions":
 * a group has 5).
 */
const MOST_PER_CLAIM = 150

export function createClaimRound(options: ClaimRoundOptions) {
  const { store, clock, directory, order, window, paths, capture, placing, hold, lease } = options

  function capacityOf(group: RouteGroup, rooms: KeyRooms, closures: (() => void)[]): Capacity {
    if (group.route === capture.facts.route) {
      const slots = Math.max(1, paths.freeSlots(capture.facts, CAPTURE_GATE))
      return { room: paths.roomOf(capture.facts, CAPTURE_GATE, true), slots }
    }
    let closure: Closure | undefined
    let room = 0
    const seen = new Set<string>()
    for (const key of directory.dueOf(group)) {
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
    const left = Math.max(0, room - placing.of(group))
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
    /** For one claim. */
    asks(): KeyAsk[] {
      const rooms = createKeyRooms(options, placing.firstAttempts())
      /** The directory is told after the round: it changes the fair order. */
      const closures: (() => void)[] = []
      const asks = order.round({
        room: Math.min(window.room(), MOST_PER_CLAIM),
        mostPerLane: Math.max(1, Math.floor(options.readyWindow() / 2)),
        roomForBulk: window.roomForBulk(),
        heldOf: window.ofLane,
        capacityOf: (group) => capacityOf(group, rooms, closures),
        roomOf: (key) => roomOf(key, rooms, closures),
      })
      for (const close of closures) close()
      return asks
    },
    /** Resolves with the rows that are ours now. */
    async claim(asks: KeyAsk[]): Promise<ClaimedMessage[]> {
      for (const { key } of asks) directory.beginClaim(key)
      try {
        const { messages, earliestAt } = await store.claimDue({ now: clock.now(), ...lease(), asks })
        const claimed = countByKey(messages)
        asks.forEach(({ key }, index) => {
          directory.endClaim(key, claimed.get(keyName(key)) ?? 0, earliestAt[index] ?? null)
        })
        // An older claim may still have such a row in hand: its lease lapsed, or its return was not heard yet. What
        // comes of the older claim is refused by the store, its dot mark too.
        hold(messages)
        return messages
      } catch (thrown) {
        for (const { key } of asks) directory.failClaim(key)
        throw thrown
      }
    },
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
