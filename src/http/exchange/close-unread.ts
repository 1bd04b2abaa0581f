/**
 * Ends a connection whose request was answered before its body was read. Closing at once would make the kernel send a
 * reset that can overtake the answer (RFC 9112 §9.6): the answer is followed by a half-close, nothing more is read, and
 * the socket is destroyed a moment later. What was pipelined behind the request is not handled.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { SECOND } from '../../base/clock.ts'

/** Time for a client that is still sending to read its answer. */
const LINGER = SECOND

export type UnreadCloser = ReturnType<typeof createUnreadCloser>

export function createUnreadCloser() {
  const closing = new WeakSet<Socket>()
  return {
    closeAfterAnswer(request: IncomingMessage, response: ServerResponse) {
      const { socket } = request
      if (closing.has(socket)) return
      closing.add(socket)
      response.setHeader('Connection', 'close')
      // node:http drains what nobody has begun to read: so one piece is taken, and no more.
      request.read()
      // node:http calls this when the last answer is out.
      socket.destroySoon = () => {
        socket.end()
        setTimeout(() => socket.destroy(), LINGER).unref()
      }
    },
    isClosing: (socket: Socket) => closing.has(socket),
  }
}

/** True while a part of the body has not arrived. */
export function isBodyComing(request: IncomingMessage): boolean {
  if (request.complete) return false
  const { headers } = request
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}
