/**
 * How many bytes of large messages a delivery thread has in memory at once. A message is there until its host has taken
 * it, and a host may take its time: of the room the messages to one recipient domain get a half, so that a host which
 * hardly reads does not hold up those to all others. Who finds no room waits in line for a while; one that is larger
 * than all of the room, or than the half, gets it alone. Never rejects.
 */
import { SECOND } from '../../base/clock.ts'

/** Gives the room back; once is enough. */
type Leave = () => void

interface Large {
  bytes: number
  /** The recipient domain. */
  domain: string
}

/** Hosts wait some minutes for a command (RFC 5321 §4.5.3.2.7), but nobody likes connections that say nothing. */
const LONGEST_WAIT = 20 * SECOND
/** Of the room, for one recipient domain. */
const SHARE_OF_DOMAIN = 0.5

/** What is returned resolves with null when there was no room in time. */
export function createLargeRoom(
  mostBytes: number,
  longestWait = LONGEST_WAIT,
): (bytes: number, domain: string) => Promise<Leave | null> {
  const inside = new Set<Large>()
  const line: (Large & { enter: (leave: Leave) => void })[] = []

  const fits = (bytes: number, others: Iterable<Large>, most: number): boolean => {
    const usedBytes = Array.from(others).reduce((sum, other) => sum + other.bytes, 0)
    return usedBytes === 0 || usedBytes + bytes <= most
  }

  function hasShare({ bytes, domain }: Large): boolean {
    const same = [...inside].filter((other) => other.domain === domain)
    return fits(bytes, same, mostBytes * SHARE_OF_DOMAIN)
  }

  /** Whose domain has its share waits beside the line; nobody else is overtaken. */
  function admit(): void {
    for (let next = line.find(hasShare); next !== undefined; next = line.find(hasShare)) {
      if (!fits(next.bytes, inside, mostBytes)) return
      const { bytes, domain, enter } = next
      const large = { bytes, domain }
      line.splice(line.indexOf(next), 1)
      inside.add(large)
      enter(() => {
        if (inside.delete(large)) admit()
      })
    }
  }

  return (bytes, domain) =>
    new Promise((resolve) => {
      const waiting = {
        bytes,
        domain,
        enter(leave: Leave): void {
          clearTimeout(timer)
          resolve(leave)
        },
      }
      const timer = setTimeout(() => {
        line.splice(line.indexOf(waiting), 1)
        resolve(null)
        // Those behind it may find the room that it did not.
        admit()
      }, longestWait)
      line.push(waiting)
      admit()
    })
}
