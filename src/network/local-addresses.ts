/**
 * Which addresses exist on this machine: asked by binding a TCP socket to a free port, which is what delivery will do
 * (`localAddress`). A list of interfaces would not know what the kernel allows, e.g. all of 127.0.0.0/8 on Linux. Never
 * throws: text that is no address cannot be bound.
 */
import { createServer } from 'node:net'
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
