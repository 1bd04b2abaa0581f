/**
 * How many connections a door has, in all and from one address, and how long one may hold its place without reading
 * what it asked for (src/README.md "Bounds").
 */
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { clientKey } from '../base/ip-address.ts'
import { isTrusted } from './exchange/client-address.ts'

interface ConnectionLimitsOptions {
  total: number
  perAddress: number
  trustedProxies: readonly string[]
}

/**
 * At a limit the new connection is closed at once. Trusted proxies are exempt from that of one address: many clients
 * share theirs.
 */
export function createConnectionLimits({ total, perAddress, trustedProxies }: ConnectionLimitsOptions) {
  const byAddress = new Map<string, number>()
  let open = 0
  return {
    /** Counts the connection, or closes it. */
    admit(socket: Socket) {
      const peer = socket.remoteAddress ?? ''
      const isProxy = isTrusted(peer, trustedProxies)
      // A proxy does not count among its neighbours.
      const address = isProxy ? peer : clientKey(peer)
      const ofAddress = byAddress.get(address) ?? 0
      if (open >= total || (ofAddress >= perAddress && !isProxy)) {
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

/** With each of them a request comes. */
export const REQUEST_EVENTS = ['request', 'checkContinue', 'checkExpectation']

/**
 * Cuts a connection on which nothing moved for so long although something waits to be read. One whose answer is still
 * being made stays; between requests node:http has its own times. It takes up to twice as long: node:net takes the first
 * expiry after a write for progress.
 */
export function endUnread(server: Server, milliseconds: number): void {
  const watch = ({ socket }: IncomingMessage, response: ServerResponse): void => {
    socket.setTimeout(milliseconds)
    // That somebody listens keeps node:http from cutting it in any case.
    response.on('timeout', () => {
      if (response.writableLength > 0) socket.destroy()
    })
  }
  for (const event of REQUEST_EVENTS) server.prependListener(event, watch)
}
