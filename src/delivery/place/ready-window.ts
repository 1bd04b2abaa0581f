/**
 * The ready window: which rows are claimed and not settled yet, in all and by whose they are. Pure; never throws. A row
 * is known by its claim. The answer to a claim may be heard before the answer to the give-back that freed the same row,
 * since both shared a commit: then both claims are held for a moment, and each is released on its own.
 * delivery/README.md "From the table to the wire" and "Fairness".
 */
import type { Stream } from '../../mail/message.ts'
import type { ClaimedMessage } from '../../store/records/claim-records.ts'

export type ReadyWindow = ReturnType<typeof createReadyWindow>

const SHARE_OF_BULK = 0.75

/** `size`: `delivery.ready_window`, read at each use: rows outside of the threads. In all, twice as many are held. */
export function createReadyWindow(size: () => number) {
  const held = new Map<number, ClaimedMessage>()
  const lanes = createCounts()
  const domains = createCounts()
  let outside = 0
  let bulkOutside = 0

  function change(message: ClaimedMessage, by: 1 | -1): void {
    lanes.add(`${message.domain} ${message.stream}`, by)
    domains.add(`${message.pool} ${message.route} ${message.domain}`, by)
    move(message, by)
  }

  function move({ stream }: ClaimedMessage, by: 1 | -1): void {
    outside += by
    if (stream === 'bulk') bulkOutside += by
  }

  const room = (): number => Math.max(0, Math.min(size() - outside, 2 * size() - held.size))

  return {
    hold(messages: readonly ClaimedMessage[]): void {
      for (const message of messages) {
        held.set(message.claim, message)
        change(message, 1)
      }
    },
    handOver: (message: ClaimedMessage) => move(message, -1),
    takeBack: (message: ClaimedMessage) => move(message, 1),
    release(claims: readonly number[]): void {
      for (const claim of claims) {
        const message = held.get(claim)
        if (message === undefined) continue
        held.delete(claim)
        change(message, -1)
      }
    },
    /** Rows that may be claimed now; of bulk mail a quarter less, so that other mail always finds room. */
    room,
    roomForBulk: () => Math.min(room(), Math.max(0, Math.ceil(size() * SHARE_OF_BULK) - bulkOutside)),
    ofLane: (domain: string, stream: Stream) => lanes.of(`${domain} ${stream}`),
    /** Rows of the sending domain that are held, on one route. */
    ofDomain: (pool: string, route: string, domain: string) => domains.of(`${pool} ${route} ${domain}`),
    size: () => held.size,
    held: () => held.values(),
  }
}

/** Counts by name; a name without any is forgotten. */
export function createCounts() {
  const counts = new Map<string, number>()
  return {
    add(name: string, by: number): void {
      const count = (counts.get(name) ?? 0) + by
      if (count > 0) counts.set(name, count)
      else counts.delete(name)
    },
    of: (name: string) => counts.get(name) ?? 0,
    all: (): Iterable<[string, number]> => counts,
  }
}
