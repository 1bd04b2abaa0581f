/**
 * The webhook endpoint of the bench: answers 200 at once, counts each event once and keeps a sample, whose signatures
 * `check` verifies afterwards. On raw connections and read only as far as that needs: it shares the cores with what is
 * measured.
 */
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { HEADER_END, lengthOfBody } from './http-text.ts'

export interface WebhookCounter {
  readonly url: string
  /** Different events so far. */
  events(): number
  /** Throws when an event came twice, or when a signature of the sample is not the one of its body. */
  check(): void
  close(): Promise<void>
}

const ANSWER = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n'
const SAMPLE_EVERY = 500

/** `secret` is the one the endpoint was registered with. */
export async function startWebhookCounter(secret: string): Promise<WebhookCounter> {
  const events = new Set<string>()
  const sample: { signature: string; body: string }[] = []
  const sockets = new Set<Socket>()
  let posts = 0
  const take = (header: string, body: string): void => {
    if (posts % SAMPLE_EVERY === 0) sample.push({ signature: fieldOf(header, SIGNATURE), body })
    posts += 1
    events.add(fieldOf(header, EVENT_ID))
  }
  const server = createServer({ noDelay: true }, (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
    // The server that posts is killed when its measurement is over.
    socket.on('error', () => socket.destroy())
    takeRequests(socket, take)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`,
    events: () => events.size,
    check() {
      if (events.size !== posts) throw new Error(`${posts} webhooks for ${events.size} events`)
      for (const { signature, body } of sample) {
        const right = createHmac('sha256', secret).update(body, 'latin1').digest('hex')
        if (signature !== right) throw new Error(`a webhook is signed ${signature} and not ${right}: ${body}`)
      }
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

const EVENT_ID = /\r\nx-service-event-id: *(\S+)/i
const SIGNATURE = /\r\nx-service-signature: *(\S+)/i

/** Answers each whole request; the texts have a character for each byte. */
function takeRequests(socket: Socket, take: (header: string, body: string) => void): void {
  let received = ''
  socket.on('data', (bytes: Buffer) => {
    received += bytes.toString('latin1')
    for (;;) {
      const headerEnd = received.indexOf(HEADER_END)
      if (headerEnd < 0) return
      const header = received.slice(0, headerEnd)
      const bodyAt = headerEnd + HEADER_END.length
      const end = bodyAt + lengthOfBody(header)
      if (received.length < end) return
      take(header, received.slice(bodyAt, end))
      received = received.slice(end)
      socket.write(ANSWER, 'latin1')
    }
  })
}

function fieldOf(header: string, field: RegExp): string {
  const value = field.exec(header)?.[1]
  if (value === undefined) throw new Error(`a webhook without ${field.source}: ${header}`)
  // A text of its own: a part of a text keeps all of it in memory.
  return Buffer.from(value, 'latin1').toString('latin1')
}
