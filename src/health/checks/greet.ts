/**
 * Connects to an SMTP server, reads its greeting and, if asked, what it says to our name, and ends with QUIT. Never
 * rejects, and never waits for the other side to close.
 */
import { connect, type NetConnectOpts, type Socket } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { SECOND } from '../../base/clock.ts'
import { errorCode, errorText } from '../../base/errors.ts'

interface GreetRequest {
  address: string
  port: number
  /** The address to bind; undefined: the system's choice. */
  source?: string
  isTls?: boolean
  /** Our name: then the first line that answers it is read too. */
  hello?: string
  timeoutMilliseconds: number
}

type Greeting =
  | { kind: 'greeted'; line: string; answer: string | null } // the first lines of the greeting and of what EHLO got
  | { kind: 'failed'; reason: string }

const MOST_CHARACTERS = 4_096
/** For the other side to close after our QUIT. */
const CLOSE_MILLISECONDS = SECOND
/** The last line of a reply (RFC 5321 §4.2.1). */
const LAST_LINE = /^\d{3}(?: .*)?\r\n/m

export function greet({ address, port, source, isTls, hello, timeoutMilliseconds }: GreetRequest): Promise<Greeting> {
  return new Promise((resolve) => {
    const options: NetConnectOpts = { host: address, port, ...(source === undefined ? {} : { localAddress: source }) }
    const socket: Socket =
      isTls === true ? connectTls({ ...options, host: address, port, rejectUnauthorized: false }) : connect(options)
    let isConnected = false
    let received = ''
    let line: string | null = null
    const end = (greeting: Greeting): void => {
      clearTimeout(timer)
      if (greeting.kind === 'greeted') {
        socket.end('QUIT\r\n')
        setTimeout(() => socket.destroy(), CLOSE_MILLISECONDS).unref()
      } else {
        socket.destroy()
      }
      resolve(greeting)
    }
    const fail = (reason: string): void =>
      end(line === null ? { kind: 'failed', reason } : { kind: 'greeted', line, answer: null })
    const timer = setTimeout(() => {
      const seconds = timeoutMilliseconds / SECOND
      fail(isConnected ? `no greeting within ${seconds} s` : `timed out (${seconds} s)`)
    }, timeoutMilliseconds)
    socket.on('connect', () => {
      isConnected = true
    })
    socket.on('error', (error) => fail(reasonOf(error)))
    socket.on('close', () => fail('the connection was closed without a greeting'))
    socket.on('data', (chunk: Buffer) => {
      received = (received + chunk.toString('latin1')).slice(0, MOST_CHARACTERS)
      const isWhole = LAST_LINE.test(received) || received.length === MOST_CHARACTERS
      const [first = ''] = received.split('\r\n')
      if (line !== null) {
        if (received.includes('\r\n')) end({ kind: 'greeted', line, answer: first })
      } else if (isWhole) {
        line = first
        if (hello === undefined || !first.startsWith('2')) return end({ kind: 'greeted', line, answer: null })
        received = ''
        socket.write(`EHLO ${hello}\r\n`)
      }
    })
  })
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ENETUNREACH: 'network unreachable',
  EHOSTUNREACH: 'host unreachable',
  ETIMEDOUT: 'timed out',
  EADDRNOTAVAIL: 'the address is not on this machine',
  ECONNRESET: 'connection reset',
}

export function reasonOf(error: Error): string {
  return REASONS[errorCode(error)] ?? errorText(error)
}
