/**
 * A customer's webhook endpoint on loopback: keeps what arrives, byte for byte, and answers by a script.
 */
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface ReceivedRequest {
  method: string
  path: string
  headers: IncomingMessage['headers']
  /** The exact bytes. */
  body: Buffer
  /** Unix milliseconds of real time. */
  at: number
}

/** A status; never an answer; the connection closed in place of one; or a status after a while, or behind an event. */
export type ReceiverAnswer =
  | number
  | 'hang'
  | 'close'
  | { status: number; afterMilliseconds: number }
  | { status: number; behind: Promise<unknown> }

export interface WebhookReceiver {
  readonly url: string
  /** In the order in which they were complete. */
  readonly requests: readonly ReceivedRequest[]
  /** The next requests get these answers, one each; the last one stays. */
  answerWith(...answers: ReceiverAnswer[]): void
  /** Cuts what is under way. May be called again. */
  close(): Promise<void>
}

export async function webhookReceiver(...firstAnswers: ReceiverAnswer[]): Promise<WebhookReceiver> {
  const requests: ReceivedRequest[] = []
  let script: ReceiverAnswer[] = firstAnswers.length > 0 ? firstAnswers : [200]
  const timers = new Set<NodeJS.Timeout>()

  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const { method = '', url: path = '', headers } = request
      requests.push({ method, path, headers, body: Buffer.concat(chunks), at: Date.now() })
      const answer = (script.length > 1 ? script.shift() : script[0]) ?? 200
      give(answer, response, timers)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo

  return {
    url: `http://127.0.0.1:${port}/hooks`,
    requests,
    answerWith: (...answers) => void (script = answers),
    async close() {
      if (!server.listening) return
      for (const timer of timers) clearTimeout(timer)
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

function give(answer: ReceiverAnswer, response: ServerResponse, timers: Set<NodeJS.Timeout>): void {
  if (answer === 'hang') return
  if (answer === 'close') return void response.destroy()
  if (typeof answer === 'number') return void response.writeHead(answer).end(answer === 204 ? undefined : 'thank you')
  if ('behind' in answer) return void answer.behind.then(() => give(answer.status, response, timers))
  timers.add(setTimeout(() => give(answer.status, response, timers), answer.afterMilliseconds))
}
