/**
 * A receiving SMTP server that keeps what it takes, byte for byte, with its envelope; and that can be told to put mail
 * off for a while.
 */
import { once } from 'node:events'
import { createServer } from 'node:net'
import type { AddressInfo, Socket } from 'node:net'

export interface KeptMail {
  from: string
  to: string
  /** As sent, without the stuffing of dots (RFC 5321 §4.5.2). */
  bytes: Buffer
  /** Where it came from. */
  source: string
}

export interface KeepingSink {
  port: number
  mails: readonly KeptMail[]
  /** Recipients that were put off so far. */
  deferrals(): number
  /** From now on, every recipient is answered 451, or taken. */
  defer(isDeferring: boolean): void
  close(): Promise<void>
}

export interface KeepingSinkOptions {
  address?: string
  /** Called before the answer to the final dot; the mail is taken when it resolves. */
  onMail?: (mail: KeptMail) => Promise<void>
}

const END_OF_DATA = '\r\n.\r\n'

export async function startKeepingSink(options: KeepingSinkOptions = {}): Promise<KeepingSink> {
  const { address = '127.0.0.1', onMail = async () => {} } = options
  const mails: KeptMail[] = []
  const sockets = new Set<Socket>()
  let isDeferring = false
  let deferrals = 0

  const server = createServer((socket) => {
    const source = socket.remoteAddress ?? ''
    let from = ''
    let to = ''
    let isInData = false
    let buffer = ''
    const take = async (text: string): Promise<void> => {
      const mail = { from, to, source, bytes: Buffer.from(unstuffed(text), 'latin1') }
      await onMail(mail)
      mails.push(mail)
      socket.write('250 2.0.0 taken\r\n')
    }
    const answerLine = (line: string): string => {
      const verb = line.slice(0, 4).toUpperCase()
      // The address between the angle brackets.
      const path = /<([^>]*)>/.exec(line)?.[1] ?? ''
      if (verb === 'EHLO') return '250-sink.test\r\n250-PIPELINING\r\n250 8BITMIME'
      if (verb === 'MAIL') [from, to] = [path, '']
      if (verb === 'RCPT' && isDeferring) {
        deferrals += 1
        return '451 4.3.0 come back later'
      }
      if (verb === 'RCPT') to = path
      if (verb === 'DATA' && to === '') return '554 5.5.1 no recipient'
      if (verb === 'DATA') isInData = true
      if (verb === 'QUIT') return '221 2.0.0 bye'
      return verb === 'DATA' ? '354 go on' : '250 2.0.0 ok'
    }
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
    socket.on('data', (bytes) => {
      buffer += bytes.toString('latin1')
      for (;;) {
        const end = buffer.indexOf(isInData ? END_OF_DATA : '\r\n')
        if (end < 0) return
        const text = buffer.slice(0, end + 2)
        buffer = buffer.slice(end + (isInData ? END_OF_DATA.length : 2))
        if (isInData) {
          isInData = false
          take(text).catch((thrown: Error) => socket.destroy(thrown))
        } else {
          socket.write(`${answerLine(text)}\r\n`)
        }
      }
    })
    socket.write('220 sink.test ESMTP\r\n')
  })
  server.listen(0, address)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    mails,
    deferrals: () => deferrals,
    defer: (value) => void (isDeferring = value),
    async close() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
}

/** A line that begins with a dot came with one more. */
function unstuffed(text: string): string {
  return text.replace(/^\.\./gm, '.') // two dots at the start of a line
}
