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
import type { WireAnswer, WireData, WireLine, WireRequest, WireResult } from './wire-messages.ts'

function startWireThread({ signal, url, nodeId, port, notes }: WireData): void {
  const bell = new Int32Array(signal)
  const tell = (answer: WireAnswer): void => {
    port.postMessage(answer)
    Atomics.add(bell, 0, 1)
    Atomics.notify(bell, 0)
  }
  const onProblem = createProblems((note) => notes?.postMessage(note))
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
      .then((answer) => tell({ id, ...answer }))
  })

  function keep(line: WireLine) {
    return keepConnected({ url, nodeId, line, name, onProblem: (problem) => onProblem(line, problem) })
  }
}

/** Told once for both lines: when one of them does not answer any more, and when both do. */
function createProblems(tell: (note: EngineNote) => void) {
  const problems = new Map<WireLine, string>()
  return (line: WireLine, problem: string | null): void => {
    const before = problems.size
    if (problem === null) problems.delete(line)
    else problems.set(line, problem)
    if ((before === 0) !== (problems.size === 0)) tell(problem)
  }
}

startWireThread(workerData as WireData)
