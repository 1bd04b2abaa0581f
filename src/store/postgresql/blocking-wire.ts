/**
 * Asking PostgreSQL and waiting for the answer, in a thread that exists to wait: the other one (`wire-thread.ts`) speaks.
 *
 * Throws ServiceError `unavailable` when nothing was sent, ConnectionLost when it is not known what was done,
 * ServerRefused for what the server cannot do now, StatementFailed for what it never does, and DatabaseChanged when the
 * database is not as it was left.
 */
import { MessageChannel, receiveMessageOnPort, Worker, type MessagePort } from 'node:worker_threads'
import { ServiceError } from '../../base/errors.ts'
import type { PostgresLocation } from '../store-location.ts'
import type {
  AnsweredRequest,
  Granted,
  StatementAnswer,
  WireAnswer,
  WireData,
  WireLine,
  WireRequest,
  WireStatement,
} from './wire-messages.ts'

/** The statement is wrong, or what it is given. `code`: SQLSTATE. */
export class StatementFailed extends Error {
  readonly code: string

  constructor(code: string, message: string) {
    super(message)
    this.code = code
  }
}

/** Nothing was sent, or what those below say. */
export class DatabaseAway extends ServiceError {
  /** SQLSTATE or the system's code, of why. */
  readonly reason: string

  constructor(reason: string, message: string, details = 'the database does not answer') {
    super('unavailable', details, { ...RETRY, cause: new Error(message) })
    this.reason = reason
  }
}

/** The connection ended while something was under way. */
export class ConnectionLost extends DatabaseAway {}

/** The server cannot do it now: its disk is full, somebody else holds the row. */
export class ServerRefused extends DatabaseAway {
  constructor(reason: string, message: string) {
    super(reason, message, 'the database refuses it for now')
  }
}

/** Somebody else worked in its place, or it is an older copy: what this process remembers of it is wrong. */
export class DatabaseChanged extends DatabaseAway {}

/** One statement failed, and would not when it came alone: the transaction itself is no worse than before it. */
export function isOfStatement(thrown: unknown): boolean {
  if (thrown instanceof StatementFailed) return true
  return thrown instanceof ServerRefused && IN_THE_WAY.test(thrown.reason)
}

const RETRY = { headers: { 'Retry-After': '2' } }
// Classes of SQLSTATE that speak of the server or of others: connections, a standby, deadlocks, resources, locks, operators, its system.
const OF_SERVER = /^(?:08|25006|40|53|55|57|58)/
// Those of them where another one was in the way: a deadlock or a lock, or an operator who canceled the statement.
const IN_THE_WAY = /^(?:40|55P03|57014)/
/** SQLSTATE of `begin_writing` (migrations/0002-nodes.sql). */
const DECLARED_DEAD = 'STP01'
/** Longer than the other thread waits for the server. */
const MOST_WAIT_MILLISECONDS = 60_000

export interface BlockingWire {
  /** What the next statements of the line that writes take for granted. */
  granted: Granted
  /** Answers in order. `isPatient`: a connection is waited for, and an answer for as long as it takes. */
  ask(line: WireLine, statements: WireStatement[], isPatient?: boolean): StatementAnswer[]
  close(): void
}

/** `notes`: where EngineNotes go; null: nowhere. */
export function openBlockingWire(
  { url, nodeId }: Pick<PostgresLocation, 'url' | 'nodeId'>,
  notes: MessagePort | null,
  mostWaitMilliseconds = MOST_WAIT_MILLISECONDS,
): BlockingWire {
  const signal = new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT)
  const bell = new Int32Array(signal)
  const { port1: port, port2 } = new MessageChannel()
  const workerData: WireData = { signal, url, nodeId, port: port2, notes }
  const entry = new URL('./wire-thread.ts', import.meta.url)
  const transferList = notes === null ? [port2] : [port2, notes]
  const worker = new Worker(entry, { workerData, transferList, name: 'postgresql', execArgv: [] })
  worker.unref()
  const anything: Granted = { session: null, lastCommit: null }
  const granted = { ...anything }
  let lastId = 0

  const exchange = (request: AnsweredRequest, mostMilliseconds = mostWaitMilliseconds): WireAnswer => {
    port.postMessage(request)
    for (;;) {
      const before = Atomics.load(bell, 0)
      const received = receiveMessageOnPort(port) as { message: WireAnswer } | undefined
      if (received?.message.id === request.id) return received.message
      if (received !== undefined) continue
      if (Atomics.wait(bell, 0, before, mostMilliseconds) === 'timed-out') {
        // What it had begun must not go on, nor be taken for the next transaction.
        if (request.kind === 'ask') port.postMessage({ kind: 'drop', line: request.line } satisfies WireRequest)
        throw new ConnectionLost('', 'the thread that speaks to it does not answer')
      }
    }
  }

  return {
    granted,
    ask(line, statements, isPatient = false) {
      const given = line === 'write' ? granted : anything
      const request: AnsweredRequest = { ...given, kind: 'ask', id: ++lastId, line, statements, isPatient }
      const answer = exchange(request, isPatient ? Infinity : mostWaitMilliseconds)
      if (answer.session !== undefined && line === 'write') granted.session = answer.session
      if (answer.kind === 'done') return answer.answers
      const { kind, code, message } = answer
      if (kind === 'lost') throw new ConnectionLost('', message)
      if (kind === 'unreachable') throw new DatabaseAway(code, message)
      if (kind === 'changed' || code === DECLARED_DEAD) throw new DatabaseChanged(code, message)
      if (OF_SERVER.test(code)) throw new ServerRefused(code, message)
      throw new StatementFailed(code, message)
    },
    close() {
      exchange({ kind: 'close', id: ++lastId }, MOST_WAIT_MILLISECONDS)
      port.close()
    },
  }
}
