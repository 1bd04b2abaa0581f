/**
 * Opens a TCP connection that leaves from one given address, or none at all. Never throws. The address is bound before
 * connecting and read back afterwards: mail must not leave from another source than the chosen one. An address this
 * machine does not have any more is a result of its own. delivery/README.md "The SMTP session".
 */
import { connect, type Socket } from 'node:net'
import { errorCode, errorText } from '../../base/errors.ts'
import { canonicalIp } from '../../base/ip-address.ts'

type Connected =
  | { kind: 'connected'; socket: Socket }
  | { kind: 'failed'; reason: string; isTimeout: boolean }
  | { kind: 'source-gone'; reason: string }

interface ConnectRequest {
  address: string
  port: number
  source: string
  timeoutMilliseconds: number
}

export function connectFrom(request: ConnectRequest): Promise<Connected> {
  return new Promise((resolve) => {
    const { address: host, port, source: localAddress } = request
    const socket = connect({ host, port, localAddress, autoSelectFamily: false, noDelay: true })
    const finish = (result: Connected): void => {
      clearTimeout(timer)
      socket.removeAllListeners()
      if (result.kind !== 'connected') socket.on('error', ignoreLateError).destroy()
      resolve(result)
    }
    const timer = setTimeout(
      () => finish({ kind: 'failed', reason: `no answer within ${request.timeoutMilliseconds} ms`, isTimeout: true }),
      request.timeoutMilliseconds,
    )
    socket.once('connect', () => finish(checkSource(socket, request.source)))
    socket.once('error', (error) => finish(judgeError(error)))
  })
}

function checkSource(socket: Socket, source: string): Connected {
  const used = canonicalIp(socket.localAddress ?? '')
  if (used === canonicalIp(source)) return { kind: 'connected', socket }
  return { kind: 'source-gone', reason: `the socket left from ${used ?? 'no address'} instead of ${source}` }
}

function judgeError(error: Error): Connected {
  const isBindError = 'syscall' in error && error.syscall === 'bind'
  if (isBindError && errorCode(error) === 'EADDRNOTAVAIL') return { kind: 'source-gone', reason: errorText(error) }
  return { kind: 'failed', reason: errorText(error), isTimeout: errorCode(error) === 'ETIMEDOUT' }
}

/** A socket given up may still report why; nobody waits for that. */
function ignoreLateError(): void {}
