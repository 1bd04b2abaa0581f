/**
 * How many connections there may be, in all and from one address; at a limit the new one is closed at once. Trusted
 * proxies are exempt from the second: many clients share their address.
 */
import type { Socket } from 'node:net'
import { canonicalIp } from '../base/ip-address.ts'
import { isTrusted } from './exchange/client-address.ts'

export interface ConnectionLimits {
  /** Counts the connection, or closes it. */
  admit(socket: Socket): void
}

export interface ConnectionLimitsOptions {
  total: number
  perAddress: number
  trustedProxies: readonly string[]
}

export function createConnectionLimits(options: ConnectionLimitsOptions): ConnectionLimits {
  const { total, perAddress, trustedProxies } = options
  const byAddress = new Map<string, number>()
  let open = 0
  return {
    admit(socket) {
      const peer = socket.remoteAddress ?? ''
      const address = canonicalIp(peer) ?? peer
      const ofAddress = byAddress.get(address) ?? 0
      if (open >= total || (ofAddress >= perAddress && !isTrusted(address, trustedProxies))) {
        socket.destroy()
        return
      }
      open += 1
      byAddress.set(address, ofAddress + 1)
      socket.once('close', () => {
        open -= 1
        const left = (byAddress.get(address) ?? 1) - 1
        if (left > 0) byAddress.set(address, left)
        else byAddress.delete(address)
      })
    },
  }
}
