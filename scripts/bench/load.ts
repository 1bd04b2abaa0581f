/**
 * The load: a number of clients that each post the next message as soon as the last one was answered.
 *
 * It shares the cores with what it measures and should cost as little as Postfix's smtp-source: the bytes of a request
 * are made once for each client and only the message's number is put in anew; answers are read as far as their status
 * and length. Still every message is one HTTP request of its own, written when the answer to the one before was there.
 * Throws when any request is not answered with 200.
 */
import { connect, type NetConnectOpts, type OnReadOpts } from 'node:net'
import { HEADER_END, lengthOfBody } from './http-text.ts'
import { digitsOf, NUMBER } from './message.ts'

export interface LoadOptions {
  baseUrl: string
  apiKey: string
  clients: number
  /** Requests in all. */
  messages: number
  /** A text in which the number of the request stands at each NUMBER; or made anew for each request. */
  body: string | ((index: number) => string)
  /** Left out: one message a request. */
  path?: string
}

export interface LoadResult {
  seconds: number
  /** Milliseconds from request to answer, ascending. */
  latencies: number[]
}

/** The bytes of request `index`; they are good until the next call. */
type MakeRequest = (index: number) => Buffer

const STATUS_AT = 'HTTP/1.1 '.length
const MOST_READ = 65_536

export async function runLoad(options: LoadOptions): Promise<LoadResult> {
  const { hostname, port } = new URL(options.baseUrl)
  const latencies: number[] = []
  let next = 0
  const client = async (): Promise<void> => {
    const requestOf = requestMaker(options)
    let index = 0
    let askedAt = 0
    await exchange({ host: hostname, port: Number(port) }, (answer) => {
      if (answer !== null) {
        if (!answer.startsWith('200', STATUS_AT)) throw new Error(`request ${index} was not accepted: ${answer}`)
        latencies.push(performance.now() - askedAt)
      }
      if (next >= options.messages) return null
      index = next++
      askedAt = performance.now()
      return requestOf(index)
    })
  }
  const startedAt = performance.now()
  await Promise.all(Array.from({ length: options.clients }, client))
  return { seconds: (performance.now() - startedAt) / 1_000, latencies: latencies.sort((left, right) => left - right) }
}

/** Calls `next` with null, then with each whole answer; resolves when it has no request left, rejects as it throws. */
function exchange(where: NetConnectOpts, next: (answer: string | null) => Buffer | null): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  const bytes = Buffer.allocUnsafe(MOST_READ)
  let received = ''
  const ask = (answer: string | null): void => {
    try {
      const request = next(answer)
      if (request !== null) return void socket.write(request)
      resolve()
    } catch (thrown) {
      reject(thrown)
    }
    socket.destroy()
  }
  // One buffer for all that is read: without it each read allocates one, which costs more than what is done with it.
  const onread: OnReadOpts = {
    buffer: bytes,
    callback(count) {
      received += bytes.toString('latin1', 0, count)
      const end = received.indexOf(HEADER_END)
      if (end < 0 || received.length < end + HEADER_END.length + lengthOfBody(received.slice(0, end))) return true
      const answer = received
      received = ''
      ask(answer)
      return true
    },
  }
  const socket = connect({ ...where, noDelay: true, onread })
  socket.once('connect', () => ask(null))
  socket.on('error', reject)
  socket.on('close', () => reject(new Error(`the connection ended: ${received}`)))
  return promise
}

function requestMaker({ baseUrl, apiKey, body, path = '/v1/email/send' }: LoadOptions): MakeRequest {
  const head =
    `POST ${path} HTTP/1.1\r\nhost: ${new URL(baseUrl).host}\r\nauthorization: Bearer ${apiKey}\r\n` +
    'content-type: application/json\r\ncontent-length: '
  const request = (text: string): Buffer => Buffer.from(`${head}${Buffer.byteLength(text)}${HEADER_END}${text}`)
  if (typeof body === 'function') return (index) => request(body(index))
  const bytes = request(body)
  const places: number[] = []
  for (let at = bytes.indexOf(NUMBER); at >= 0; at = bytes.indexOf(NUMBER, at + 1)) places.push(at)
  return (index) => {
    const digits = digitsOf(index)
    for (const place of places) bytes.write(digits, place, 'latin1')
    return bytes
  }
}
