/**
 * Which addresses exist on this machine, and where its listeners are reached. The first is asked by binding a TCP socket
 * to a free port, which is what delivery will do (`localAddress`): a list of interfaces would not know what the kernel
 * allows, e.g. all of 127.0.0.0/8 on Linux. Never throws: text that is no address cannot be bound.
 */
import { createServer } from 'node:net'
import { networkInterfaces } from 'node:os'
import { MINUTE } from '../base/clock.ts'
import { ipFamily } from '../base/ip-address.ts'

export function canBind(address: string): Promise<boolean> {
  // A host name would be looked up, and its address bound instead.
  if (ipFamily(address) === undefined) return Promise.resolve(false)
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', () => resolve(false))
    server.listen({ host: address, port: 0, exclusive: true }, () => server.close(() => resolve(true)))
  })
}

const ALL = new Set(['*', '0.0.0.0', '::'])
const INTERFACES_KEPT = MINUTE
let interfaces = { readAt: -Infinity, addresses: [] as string[] }

/** Where these listeners can be reached: one for all addresses is reached at every address of every interface. */
export function listeningAddresses(listeners: readonly { address: string }[]): string[] {
  const named = listeners.map(({ address }) => address)
  return named.some((address) => ALL.has(address)) ? [...named, ...interfaceAddresses()] : named
}

/** Of all interfaces of this machine: reading them takes time, and they hardly change. */
export function interfaceAddresses(): string[] {
  if (performance.now() - interfaces.readAt > INTERFACES_KEPT) {
    const present = Object.values(networkInterfaces()).flatMap((each) => each ?? [])
    interfaces = { readAt: performance.now(), addresses: present.map(({ address }) => address) }
  }
  return interfaces.addresses
}
