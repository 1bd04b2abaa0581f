/**
 * Leads a fuzzed dialogue, and gives all that the server said. Nothing is judged here but that the server ends it.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { connect as connectTls, TLSSocket } from 'node:tls'
import type { FuzzedDialogue } from './fuzzed-dialogues.ts'

/** An answer may not come at all, where what was sent is no whole line. */
const ANSWER_PATIENCE = 40
const END_PATIENCE = 30_000
const LOOK_EVERY = 200
const ANY_NAME = { servername: 'mail.example.net', rejectUnauthorized: false }
/** Ends a mail that was begun, a login, a line; then the dialogue. */
const END = '\r\n.\r\n\r\nQUIT\r\n'

export async function leadDialogue(
  { steps, isEarly, isTls }: FuzzedDialogue,
  port: number,
  localAddress: string,
): Promise<string> {
  const place = { port, host: '127.0.0.1', localAddress, noDelay: true }
  let socket: Socket = isTls ? connectTls({ ...place, ...ANY_NAME }) : connect(place)
  let text = ''
  let isOver = false
  let wake = (): void => {}
  const hear = (): void => {
    socket.on('data', (bytes) => {
      text += bytes.toString('utf8')
      wake()
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      isOver = true
      wake()
    })
  }
  const change = (milliseconds: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, milliseconds)
      wake = () => {
        clearTimeout(timer)
        resolve()
      }
    })
  hear()
  await Promise.race([once(socket, 'connect'), once(socket, 'close')])
  if (!isEarly) while (!text.includes('\n') && !isOver) await change(END_PATIENCE)
  for (const step of steps) {
    if (isOver) return text
    if (step === 'abort') return (socket.destroy(), text)
    if (step === 'tls') {
      // What is no answer to STARTTLS has no handshake behind it.
      if (!/^220 .*\r\n$/m.test(text.slice(text.indexOf('\n') + 1))) continue
      socket.removeAllListeners('data')
      const plain = socket
      socket = connectTls({ socket: plain, ...ANY_NAME })
      hear()
      await Promise.race([once(socket, 'secureConnect').catch(() => {}), once(plain, 'close')])
      continue
    }
    const before = text.length
    socket.write(step.bytes)
    if (step.waits && text.length === before && !isOver) await change(ANSWER_PATIENCE)
  }
  if (!isOver) socket.write(END)
  for (const startedAt = performance.now(); !isOver; await change(LOOK_EVERY)) {
    // The server waits for a handshake that does not come, and has forgotten what else was said.
    if (!(socket instanceof TLSSocket) && /^220 [^\n]*TLS\r\n$/m.test(text)) return (socket.destroy(), text)
    if (performance.now() - startedAt < END_PATIENCE) continue
    socket.destroy()
    throw new Error(`the server does not end it: ${JSON.stringify(text.slice(-200))}`)
  }
  return text
}
