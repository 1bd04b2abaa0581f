/**
 * Asking PostgreSQL and waiting for the answer, in a thread that exists to wait: the other one (`wire-thread.ts`) speaks.
 *
 * Throws ServiceError `unavailable` when nothing was sent, ConnectionLost when it is not known what was done, and
 * StatementFailed for what the server refuses.
 */
import { MessageChannel, receiveMessageOnPort, Worker } from 'node:worker_threads'
import { ServiceError } from '../../base/errors.ts'
import type { StatementAnswer, WireAnswer, WireData, WireLine, WireRequest, WireStatement } from './wire-messages.ts'

/** The server refused a statement. `code`: SQLSTATE. */
export class StatementFailed extends Error {
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** The connection ended while something was under way. */
export class ConnectionLost extends ServiceError {
  /** Of the server; it may still be at work. */
  readonly process: number | null

  constructor(message: string, process: number | null) {
    super('unavailable', NO_ANSWER, { ...RETRY, cause: new Error(message) })
    this.process = process
  }
}

const NO_ANSWER = 'the database does not answer'
const RETRY = { headers: { 'Retry-After': '2' } }
/** Longer than the other thread waits for the server. */
const MOST_WAIT_MILLISECONDS = 60_000

export interface BlockingWire {
  /** Answers in order. `isPatient`: a connection is waited for. */
  ask(line: WireLine, statements: WireStatement[], isPatient?: boolean): StatementAnswer[]
  close(): void
}

export function openBlockingWire(url: string): BlockingWire {
  const signal = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)
  const bell = new Int32Array(signal)
  const { port1: port, port2 } = new MessageChannel()
  const workerData: WireData = { signal, url, port: port2 }
  const entry = new URL('./wire-thread.ts', import.meta.url)
  const worker = new Worker(entry, { workerData, transferList: [port2], name: 'postgresql', execArgv: [] })
  worker.unref()
  let lastId = 0

  const receive = (id: number): WireAnswer => {
    for (;;) {
      const before = Atomics.load(bell, 0)
      const received = receiveMessageOnPort(port) as { message: WireAnswer } | undefined
      if (received?.message.id === id) return received.message
      if (received !== undefined) continue
      if (Atomics.wait(bell, 0, before, MOST_WAIT_MILLISECONDS) === 'timed-out') {
        throw new ConnectionLost('the thread that speaks to it does not answer', null)
      }
    }
  }
  const exchange = (request: WireRequest): WireAnswer => {
    port.postMessage(request)
    return receive(request.id)
  }

  return {
    ask(line, statements, isPatient = false) {
      const answer = exchange({ kind: 'ask', id: ++lastId, line, statements, isPatient })
      switch (answer.kind) {
        case 'done':
          return answer.answers
        case 'failed':
          throw new StatementFailed(answer.code, answer.message)
        case 'lost':
          throw new ConnectionLost(answer.message, answer.process)
        case 'unreachable':
          throw new ServiceError('unavailable', NO_ANSWER, { ...RETRY, cause: new Error(answer.message) })
      }
    },
    close() {
      exchange({ kind: 'close', id: ++lastId })
      port.close()
    },
  }
}
