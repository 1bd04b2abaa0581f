/**
 * An SMTP client of raw bytes: it says what it is told, as it is told, and hands back each reply as one text.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { connect as connectTls, type TLSSocket } from 'node:tls'

export interface SmtpClient {
  /** The next reply, its lines joined by `\n`; `closed` when the connection ends first. */
  reply(): Promise<string>
  /** A command line and its reply. */
  say(line: string): Promise<string>
  /** Bytes as they are. */
  write(bytes: string | Buffer): void
  /** STARTTLS with its handshake; what is given follows in the same packet. */
  startTls(pipelined?: string): Promise<void>
  /** EHLO, and with a key AUTH PLAIN. */
  greet(key?: string): Promise<string>
  /** MAIL, one RCPT each, DATA and the text with its final dot; resolves with the last reply that came. */
  mail(recipients: readonly string[], message: string, sender?: string): Promise<string>
  /** Nothing more comes from here; replies are still read. */
  end(): void
  /** Resolves when the server has closed it. */
  closed(): Promise<void>
  destroy(): void
}

export interface ClientOptions {
  port: number
  /** TLS from the first byte, asking for this name. */
  implicitTls?: string
  localAddress?: string
}

/** Connected, with the greeting read. */
export async function smtpClient(options: ClientOptions): Promise<SmtpClient> {
  const client = await rawClient(options)
  const greeting = await client.reply()
  if (!greeting.startsWith('220')) throw new Error(greeting)
  return client
}

/** Connected; nothing read yet. */
export async function rawClient({ port, implicitTls, localAddress }: ClientOptions): Promise<SmtpClient> {
  const place = { port, host: '127.0.0.1', ...(localAddress === undefined ? {} : { localAddress }) }
  let socket: Socket | TLSSocket =
    implicitTls === undefined
      ? connect(place)
      : connectTls({ ...place, servername: implicitTls, rejectUnauthorized: false })
  let text = ''
  let isClosed = false
  let wake = (): void => {}
  const hear = (): void => {
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString()
      wake()
    })
    socket.on('error', () => {})
    socket.on('close', () => {
      isClosed = true
      wake()
    })
  }
  hear()
  await once(socket, implicitTls === undefined ? 'connect' : 'secureConnect')

  const change = (): Promise<void> =>
    new Promise((resolve) => {
      wake = resolve
    })
  const client: SmtpClient = {
    async reply() {
      for (;;) {
        // Lines with a hyphen behind the code, and the last one with a space (RFC 5321 §4.2).
        const found = /^(?:\d{3}-[^\r\n]*\r\n)*\d{3} ?[^\r\n]*\r\n/.exec(text)?.[0]
        if (found !== undefined) {
          text = text.slice(found.length)
          return found.trimEnd().replaceAll('\r\n', '\n')
        }
        if (isClosed) return 'closed'
        await change()
      }
    },
    say(line) {
      socket.write(`${line}\r\n`)
      return client.reply()
    },
    write: (bytes) => void socket.write(bytes),
    async startTls(pipelined = '') {
      socket.write(`STARTTLS\r\n${pipelined}`)
      const answer = await client.reply()
      if (!answer.startsWith('220')) throw new Error(answer)
      socket.removeAllListeners()
      socket = connectTls({ socket, servername: 'mail.example.net', rejectUnauthorized: false })
      hear()
      await once(socket, 'secureConnect')
    },
    async greet(key) {
      const answer = await client.say('EHLO app.example.org')
      return key === undefined ? answer : client.say(`AUTH PLAIN ${plainToken(key)}`)
    },
    async mail(recipients, message, sender = 'app@example.org') {
      const lines = [`MAIL FROM:<${sender}>`, ...recipients.map((address) => `RCPT TO:<${address}>`), 'DATA']
      let last = ''
      for (const line of lines) {
        last = await client.say(line)
        if (line === 'DATA' && !last.startsWith('354')) return last
        if (!line.startsWith('RCPT') && !last.startsWith('2') && !last.startsWith('3')) return last
      }
      socket.write(`${message}\r\n.\r\n`)
      return client.reply()
    },
    end: () => void socket.end(),
    async closed() {
      while (!isClosed) await change()
    },
    destroy: () => void socket.destroy(),
  }
  return client
}

export function plainToken(password: string, user = 'apikey'): string {
  return Buffer.from(`\0${user}\0${password}`).toString('base64')
}

export const base64 = (text: string): string => Buffer.from(text).toString('base64')
