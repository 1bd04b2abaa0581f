/**
 * Entry of the thread that speaks to PostgreSQL, so that the thread of the store can wait for an answer without a
 * turn of its event loop (`blocking-wire.ts`). It holds one connection that writes and one that reads, and connects
 * again by itself. Nothing is sent twice: what was under way when a connection was lost is answered as lost.
 */
import { workerData } from 'node:worker_threads'
import { keepConnected } from './kept-connection.ts'
import type { WireAnswer, WireData, WireRequest } from './wire-messages.ts'

function startWireThread({ signal, url, port }: WireData): void {
  const bell = new Int32Array(signal)
  const tell = (answer: WireAnswer): void => {
    port.postMessage(answer)
    Atomics.add(bell, 0, 1)
    Atomics.notify(bell, 0)
  }
  const lines = { write: keepConnected(url, 'write'), read: keepConnected(url, 'read') }
  port.on('message', (request: WireRequest) => {
    const { id } = request
    if (request.kind === 'close') {
      void Promise.allSettled([lines.write.close(), lines.read.close()]).then(() => {
        tell({ id, kind: 'done', answers: [], process: null })
        port.close()
      })
      return
    }
    const line = lines[request.line]
    line.ask(request).then(tell, (thrown: unknown) => {
      tell({ id, kind: 'lost', message: thrown instanceof Error ? thrown.message : String(thrown), process: null })
    })
  })
}

startWireThread(workerData as WireData)
