/**
 * How many connections a door has, in all and from one address, and the wait for the last of them. Never throws.
 *
 * A connection is given back when its socket closes or by `release`, whichever comes first: STARTTLS takes all
 * listeners off the socket it began on.
 */
import type { Socket } from 'node:net'
import { canonicalIp } from '../base/ip-address.ts'
import { createKeyedLimit } from '../base/keyed-limit.ts'

export interface ConnectionAdmission {
  /** False: it is one too many and was not counted. */
  admit(socket: Socket): boolean
  /** Of a socket that was not admitted, or was given back, nothing happens. */
  release(socket: Socket): void
  /** Resolves when there is none left, or after so much time. */
  allReleased(mostMilliseconds: number): Promise<void>
}

interface AdmissionLimits {
  connections: number
  connections_per_address: number
}

export function createConnectionAdmission(limits: AdmissionLimits): ConnectionAdmission {
  const perAddress = createKeyedLimit(limits.connections_per_address)
  const addresses = new Map<Socket, string>()
  let onEmpty = (): void => {}

  const release = (socket: Socket): void => {
    const address = addresses.get(socket)
    if (address === undefined) return
    addresses.delete(socket)
    perAddress.release(address)
    if (addresses.size === 0) onEmpty()
  }

  return {
    admit(socket) {
      const peer = socket.remoteAddress ?? ''
      const address = canonicalIp(peer) ?? peer
      if (addresses.size >= limits.connections || perAddress.free(address) <= 0) return false
      addresses.set(socket, address)
      perAddress.take(address)
      socket.once('close', () => release(socket))
      return true
    },
    release,
    allReleased(mostMilliseconds) {
      if (addresses.size === 0) return Promise.resolve()
      return new Promise((resolve) => {
        const timer = setTimeout(resolve, mostMilliseconds)
        onEmpty = () => {
          clearTimeout(timer)
          resolve()
        }
      })
    },
  }
}
