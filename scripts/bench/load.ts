/**
 * The load: a number of clients that each post the next message as soon as the last one was answered.
 *
 * Requests are written as bytes on kept connections and answers are read only as far as their status and length: the
 * generator shares the cores with what it measures, and should cost as little as Postfix's smtp-source.
 * Throws when any request is not answered with 200.
 */
import { connect } from 'node:net'
import type { Socket } from 'node:net'

export interface LoadOptions {
  baseUrl: string
  apiKey: string
  clients: number
  /** Requests in all. */
  messages: number
  body: (index: number) => string
  /** Left out: one message a request. */
  path?: string
}

export interface LoadResult {
  seconds: number
  /** Milliseconds from request to answer, ascending. */
  latencies: number[]
}

const HEADER_END = '\r\n\r\n'
const STATUS_AT = 'HTTP/1.1 '.length

export async function runLoad(options: LoadOptions): Promise<LoadResult> {
  const { hostname, port } = new URL(options.baseUrl)
  const head = `POST ${options.path ?? '/v1/email/send'} HTTP/1.1\r\nhost: ${hostname}:${port}\r\n` +
    `authorization: Bearer ${options.apiKey}\r\ncontent-type: application/json\r\ncontent-length: `
  const latencies: number[] = []
  let next = 0
  const client = async (): Promise<void> => {
    const socket = connect({ host: hostname, port: Number(port), noDelay: true })
    const ask = createExchange(socket)
    try {
      while (next < options.messages) {
        const index = next++
        const body = options.body(index)
        const startedAt = performance.now()
        const answer = await ask(`${head}${Buffer.byteLength(body)}${HEADER_END}${body}`)
        if (!answer.startsWith('200', STATUS_AT)) throw new Error(`request ${index} was not accepted: ${answer}`)
        latencies.push(performance.now() - startedAt)
      }
    } finally {
      socket.destroy()
    }
  }
  const startedAt = performance.now()
  await Promise.all(Array.from({ length: options.clients }, client))
  return { seconds: (performance.now() - startedAt) / 1_000, latencies: latencies.sort((left, right) => left - right) }
}

/** One request at a time; resolves with the whole answer. */
function createExchange(socket: Socket): (request: string) => Promise<string> {
  let received = ''
  let open: { resolve: (answer: string) => void; reject: (reason: Error) => void } | undefined
  socket.on('data', (bytes: Buffer) => {
    received += bytes.toString('latin1')
    if (open === undefined || !isWhole(received)) return
    const answer = received
    received = ''
    open.resolve(answer)
  })
  socket.on('error', (error) => open?.reject(error))
  socket.on('close', () => open?.reject(new Error(`the connection ended: ${received}`)))
  return (request) => new Promise((resolve, reject) => {
    open = { resolve, reject }
    socket.write(request)
  })
}

function isWhole(received: string): boolean {
  const end = received.indexOf(HEADER_END)
  if (end < 0) return false
  const length = Number(/\r\ncontent-length: (\d+)/i.exec(received.slice(0, end + 2))?.[1] ?? 0)
  return received.length >= end + HEADER_END.length + length
}
