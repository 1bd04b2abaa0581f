/**
 * A receiving SMTP server that holds the first transaction of each recipient at one moment, named by the local part:
 *
 *   before-mark     no 354 until `letGo`          before-answer   never an answer to the final dot
 *   before-dot      the body is not read          before-commit   no answer to the final dot until `letGo`
 *
 * Everything after that is taken. It announces no extension, so that each command waits for the reply before it.
 */
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'

export type Moment = (typeof MOMENTS)[number]

export const MOMENTS = ['before-mark', 'before-dot', 'before-answer', 'before-commit'] as const

export interface HoldingMx {
  port: number
  /** What was seen in the first transactions: `<moment> data`, `body`, `dot`, `quit` (behind the answer to the dot). */
  seen: ReadonlySet<string>
  /** Mail whose final dot has come. */
  arrivals: readonly { moment: string; text: string; at: number }[]
  letGo(): void
  close(): Promise<void>
}

const DOT = '\r\n.\r\n'

export async function startHoldingMx(): Promise<HoldingMx> {
  const seen = new Set<string>()
  const begun = new Set<string>()
  const arrivals: { moment: string; text: string; at: number }[] = []
  const sockets = new Set<Socket>()
  const gate = Promise.withResolvers<void>()

  async function converse(socket: Socket): Promise<void> {
    let buffer = ''
    let wake = (): void => {}
    let onBytes = (): void => {}
    socket.setEncoding('latin1')
    socket.on('data', (text: string) => {
      buffer += text
      onBytes()
      wake()
    })
    const upTo = async (ending: string): Promise<string> => {
      for (;;) {
        const end = buffer.indexOf(ending)
        if (end >= 0) {
          const text = buffer.slice(0, end)
          buffer = buffer.slice(end + ending.length)
          return text
        }
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    }
    const say = (line: string): void => void socket.write(`${line}\r\n`)
    let moment = ''
    let isFirst = false
    say('220 mx.test ESMTP')
    for (;;) {
      const line = await upTo('\r\n')
      const verb = line.slice(0, 4).toUpperCase()
      if (verb === 'QUIT') {
        if (isFirst) seen.add(`${moment} quit`)
        return void socket.end('221 2.0.0 bye\r\n')
      }
      if (verb === 'RCPT') {
        // The local part of the address.
        moment = /<([^@>]*)@/.exec(line)?.[1] ?? ''
        isFirst = !begun.has(moment)
        begun.add(moment)
      }
      if (verb !== 'DATA') {
        say('250 2.0.0 ok')
        continue
      }
      if (isFirst) {
        seen.add(`${moment} data`)
        onBytes = () => void seen.add(`${moment} body`)
        if (moment === 'before-mark') await gate.promise
        if (moment === 'before-dot') socket.pause()
      }
      say('354 go on')
      const text = await upTo(DOT)
      onBytes = () => {}
      arrivals.push({ moment, text, at: Date.now() })
      if (isFirst) {
        seen.add(`${moment} dot`)
        if (moment === 'before-answer') return
        if (moment === 'before-commit') await gate.promise
      }
      say('250 2.0.0 taken')
    }
  }

  const server = createServer((socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
    void converse(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    seen,
    arrivals,
    letGo: () => gate.resolve(),
    async close() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
}
