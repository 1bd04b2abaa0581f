/**
 * A bound for requests that a connection sends without waiting for answers (RFC 9112 §9.3.2): node:http hands over all
 * that one read brings, which may be 1,800 of them in one turn. A connection with too many is cut. Never throws.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

const MOST_UNANSWERED = 100

export function createPipelineLimit() {
  const unanswered = new WeakMap<Socket, number>()
  return {
    /** False: the connection is cut, and the request is not handled. */
    admit({ socket }: IncomingMessage, response: ServerResponse): boolean {
      if (socket.destroyed) return false
      const count = unanswered.get(socket) ?? 0
      if (count >= MOST_UNANSWERED) {
        socket.destroy()
        return false
      }
      unanswered.set(socket, count + 1)
      response.once('close', () => void unanswered.set(socket, (unanswered.get(socket) ?? 1) - 1))
      return true
    },
  }
}
