/**
 * How many connections there may be, in all and from one address; at a limit the new one is closed at once. Trusted
 * proxies are exempt from the second: many clients share their address.
 */
import type { Socket } from 'node:net'
import { canonicalIp } from '../base/ip-address.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import { isTrusted } from './exchange/client-address.ts'

export function createConnectionLimits({ connections, trusted_proxies }: ServerSettings['http']) {
  const { total, per_address: perAddress } = connections
  const byAddress = new Map<string, number>()
  let open = 0
  return {
    /** Counts the connection, or closes it. */
    admit(socket: Socket) {
      const peer = socket.remoteAddress ?? ''
      const address = canonicalIp(peer) ?? peer
      const ofAddress = byAddress.get(address) ?? 0
      if (open >= total || (ofAddress >= perAddress && !isTrusted(address, trusted_proxies))) {
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
