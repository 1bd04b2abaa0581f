/**
 * How many bytes of large messages a delivery thread has in memory at once. A message is there until its host has taken
 * it, and a host may take its time. Who finds no room waits in line for a while; one that is larger than all of the
 * room gets it alone. Never rejects.
 */
import { SECOND } from '../../base/clock.ts'

/** Gives the room back; once is enough. */
type Leave = () => void

/** Hosts wait some minutes for a command (RFC 5321 §4.5.3.2.7), but nobody likes connections that say nothing. */
const LONGEST_WAIT = 20 * SECOND

/** What is returned resolves with null when there was no room in time. */
export function createLargeRoom(
  mostBytes: number,
  longestWait = LONGEST_WAIT,
): (bytes: number) => Promise<Leave | null> {
  const line: { bytes: number; enter: (leave: Leave) => void }[] = []
  let usedBytes = 0

  const hasRoom = (bytes: number): boolean => usedBytes === 0 || usedBytes + bytes <= mostBytes

  function take(bytes: number): Leave {
    let takenBytes = bytes
    usedBytes += bytes
    return () => {
      usedBytes -= takenBytes
      takenBytes = 0
      for (let first = line[0]; first !== undefined && hasRoom(first.bytes); first = line[0]) {
        line.shift()
        first.enter(take(first.bytes))
      }
    }
  }

  return async (bytes) => {
    if (line.length === 0 && hasRoom(bytes)) return take(bytes)
    return new Promise((resolve) => {
      const waiting = {
        bytes,
        enter(leave: Leave): void {
          clearTimeout(timer)
          resolve(leave)
        },
      }
      const timer = setTimeout(() => {
        line.splice(line.indexOf(waiting), 1)
        resolve(null)
      }, longestWait)
      line.push(waiting)
    })
  }
}
