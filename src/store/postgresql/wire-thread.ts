/**
 * Entry of the thread that speaks to PostgreSQL, so that the thread of the store can wait for an answer without a
 * turn of its event loop (`blocking-wire.ts`). It holds one connection that writes and one that reads, and connects
 * again by itself. Nothing is sent twice: what was under way when a connection was lost is answered as lost.
 */
import { randomBytes } from 'node:crypto'
import { workerData } from 'node:worker_threads'
import { errorText } from '../../base/errors.ts'
import type { EngineNote } from '../engine/open-engine.ts'
import { keepConnected } from './kept-connection.ts'
import {
  COMMIT,
  type WireAnswer,
  type WireData,
  type WireLine,
  type WireRequest,
  type WireResult,
  type WireStatement,
} from './wire-messages.ts'

function startWireThread({ signal, url, nodeId, port, notes }: WireData): void {
  const bell = new Int32Array(signal)
  const tell = (answer: WireAnswer): void => {
    port.postMessage(answer)
    Atomics.add(bell, 0, 1)
    Atomics.notify(bell, 0)
  }
  const note = (told: EngineNote): void => notes?.postMessage(told)
  const onProblem = createProblems(note)
  const lookForRefusal = createRefusals(note)
  const name = `sternpost ${randomBytes(8).toString('hex')}`
  const lines = { write: keep('write'), read: keep('read') }
  port.on('message', (request: WireRequest) => {
    if (request.kind === 'drop') return lines[request.line].drop()
    const { id } = request
    if (request.kind === 'close') {
      void Promise.allSettled([lines.write.close(), lines.read.close()]).then(() => {
        tell({ id, kind: 'done', answers: [] })
        port.close()
        notes?.close()
      })
      return
    }
    lines[request.line]
      .ask(request)
      .catch((thrown: unknown): WireResult => ({ kind: 'lost', code: '', message: errorText(thrown) }))
      .then((answer) => {
        tell({ id, ...answer })
        if (request.line === 'write') lookForRefusal(request.statements, answer)
      })
  })

  function keep(line: WireLine) {
    return keepConnected({ url, nodeId, line, name, onProblem: (problem) => onProblem(line, problem) })
  }
}

/** Told once for both lines: when one of them does not answer any more, when the reason is another, and when both do. */
function createProblems(tell: (note: EngineNote) => void) {
  const problems = new Map<WireLine, string>()
  let told: string | null = null
  return (line: WireLine, problem: string | null): void => {
    if (problem === null) problems.delete(line)
    else problems.set(line, problem)
    const reason = problems.get('write') ?? problems.get('read') ?? null
    if (reason !== told) tell({ kind: 'away', reason })
    told = reason
  }
}

// Classes of SQLSTATE: a right that is missing; no space, no memory; trouble of its system.
const REFUSAL = /^(?:42501|53|58)/
/** What needs no space is committed while what needs some is refused. */
const REFUSAL_HOLDS_MILLISECONDS = 10_000

/** Told whenever the server refuses what is written, and when it has not for a while and commits. */
function createRefusals(tell: (note: EngineNote) => void) {
  let refusedAt: number | null = null
  return (statements: readonly WireStatement[], answer: WireResult): void => {
    if (answer.kind === 'failed' && REFUSAL.test(answer.code)) {
      refusedAt = performance.now()
      return tell({ kind: 'refusal', reason: answer.message })
    }
    if (refusedAt === null || answer.kind !== 'done' || statements.at(-1)?.text !== COMMIT) return
    if (performance.now() - refusedAt < REFUSAL_HOLDS_MILLISECONDS) return
    refusedAt = null
    tell({ kind: 'refusal', reason: null })
  }
}

startWireThread(workerData as WireData)
