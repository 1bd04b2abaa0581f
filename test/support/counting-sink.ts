/**
 * A receiving SMTP server that takes everything, slowly if asked, and counts: who arrived how often, from which IP, and
 * how many transactions are open at this moment.
 */
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'

export interface CountingSink {
  port: number
  /** Times each recipient's mail was taken with a 250 after its final dot. */
  arrivals: ReadonlyMap<string, number>
  /** Source addresses seen. */
  sources: ReadonlySet<string>
  /** Transactions between their MAIL and the answer to their final dot. */
  inFlight(): number
  close(): Promise<void>
}

export interface CountingSinkOptions {
  address?: string
  /** Time from a final dot to its answer. */
  answerDelayMilliseconds?: number
}

const END_OF_DATA = '\r\n.\r\n'

export async function startCountingSink(options: CountingSinkOptions = {}): Promise<CountingSink> {
  const { address = '127.0.0.1', answerDelayMilliseconds = 0 } = options
  const arrivals = new Map<string, number>()
  const sources = new Set<string>()
  const sockets = new Set<Socket>()
  let inFlight = 0

  const server = createServer((socket) => {
    let recipient = ''
    let isOpen = false
    let isInData = false
    let buffer = ''
    const setOpen = (value: boolean): void => {
      if (value !== isOpen) inFlight += value ? 1 : -1
      isOpen = value
    }
    const take = (): void => {
      arrivals.set(recipient, (arrivals.get(recipient) ?? 0) + 1)
      setOpen(false)
      socket.write('250 2.0.0 taken\r\n')
    }
    const answerLine = (line: string): string => {
      const verb = line.slice(0, 4).toUpperCase()
      if (verb === 'EHLO') return '250-sink.test\r\n250-PIPELINING\r\n250 8BITMIME'
      if (verb === 'MAIL') setOpen(true)
      if (verb === 'RSET') setOpen(false)
      // The address between the angle brackets.
      if (verb === 'RCPT') recipient = /<([^>]*)>/.exec(line)?.[1] ?? ''
      if (verb === 'DATA') isInData = true
      if (verb === 'QUIT') return '221 2.0.0 bye'
      return verb === 'DATA' ? '354 go on' : '250 2.0.0 ok'
    }
    sources.add(socket.remoteAddress ?? '')
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => {
      sockets.delete(socket)
      setOpen(false)
    })
    socket.on('data', (bytes) => {
      buffer += bytes.toString('latin1')
      for (;;) {
        const end = buffer.indexOf(isInData ? END_OF_DATA : '\r\n')
        if (end < 0) return
        if (isInData) {
          buffer = buffer.slice(end + END_OF_DATA.length)
          isInData = false
          setTimeout(take, answerDelayMilliseconds)
          continue
        }
        const line = buffer.slice(0, end)
        buffer = buffer.slice(end + 2)
        socket.write(`${answerLine(line)}\r\n`)
      }
    })
    socket.write('220 sink.test ESMTP\r\n')
  })
  server.listen(0, address)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    arrivals,
    sources,
    inFlight: () => inFlight,
    async close() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
}
