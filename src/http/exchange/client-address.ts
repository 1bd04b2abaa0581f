/**
 * The address of the client: the peer of the socket, or what trusted proxies (`http.trusted_proxies`) say in
 * X-Forwarded-For. The header is read from the right and believed only as far as trusted proxies wrote it, so that a
 * client cannot choose its own address. Never throws; an entry that is no address ends the reading.
 */
import type { IncomingMessage } from 'node:http'
import { canonicalIp, isInNetwork } from '../../base/ip-address.ts'

export function clientAddress(request: IncomingMessage, trustedProxies: readonly string[]): string {
  const peer = request.socket.remoteAddress ?? ''
  let address = canonicalIp(peer) ?? peer
  if (trustedProxies.length === 0) return address
  const forwarded = forwardedAddresses(request)
  while (isTrusted(address, trustedProxies)) {
    const previous = canonicalIp(forwarded.pop() ?? '')
    if (previous === undefined) return address
    address = previous
  }
  return address
}

export function isTrusted(address: string, trustedProxies: readonly string[]): boolean {
  return trustedProxies.some((network) => isInNetwork(address, network))
}

/** Leftmost first, as sent; several headers of the name count as one. */
function forwardedAddresses(request: IncomingMessage): string[] {
  const header = request.headers['x-forwarded-for']
  const text = Array.isArray(header) ? header.join(',') : (header ?? '')
  return text.split(',').map((entry) => entry.trim())
}
