/**
 * An SMTP server that offers CHUNKING and takes messages well until its script begins: then every reply is what the
 * script says. It reads what is written in one flight before it answers, and answers in one piece, as servers that
 * pipeline do; a script can let it wait for what the client has made of its answers so far.
 */
import { createServer, type AddressInfo, type Socket } from 'node:net'

/** In place of the usual reply; a function does with the socket what it likes, and nothing is said any more. */
export type EvilReply = string | ((socket: Socket) => void) | { after: Promise<unknown>; reply: string }

/** By message and command, such as `B RCPT`; messages are A, B, C and so on, from the first one of the script. */
export type EvilScript = Record<string, EvilReply>

export interface EvilHost {
  address: string
  port: number
  /** From the next message on; so many messages are read before the first of them is answered. */
  begin(script: EvilScript, messages: number): void
  /** Recipients of chunks that it answered with 250, or would have. */
  taken: string[]
  /** Says something that nobody asked for. */
  say(text: string): void
  close(): void
}

interface Command {
  verb: string
  line: string
}

const USUAL: Record<string, string> = {
  EHLO: '250-mx.test\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-ENHANCEDSTATUSCODES\r\n250 CHUNKING',
  MAIL: '250 2.1.0 ok',
  RCPT: '250 2.1.5 ok',
  DATA: '354 go on',
  BDAT: '250 2.0.0 queued',
  QUIT: '221 2.0.0 bye',
}
const FIRST_LETTER = 65
const END_OF_DATA = '\r\n.\r\n'

export async function startEvilHost(): Promise<EvilHost> {
  const taken: string[] = []
  let current: Socket | undefined
  let script: EvilScript = {}
  let messagesToRead = 0
  let message = -1
  let look = (): void => {}
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    current = socket
    socket.on('error', () => {}).write('220 mx.test ESMTP\r\n')
    const commands: Command[] = []
    let input = Buffer.alloc(0)
    let isInData = false
    let recipient = ''
    let lastVerb = ''
    let answering = Promise.resolve()

    function read(): Command | undefined {
      const end = input.indexOf(isInData ? END_OF_DATA : '\r\n')
      if (end < 0) return undefined
      const line = input.toString('latin1', 0, end)
      const verb = isInData ? 'DOT' : line.slice(0, 4).toUpperCase()
      const size = verb === 'BDAT' ? Number(line.split(' ')[1]) : 0
      const total = end + (isInData ? END_OF_DATA.length : 2) + size
      if (input.length < total) return undefined
      input = input.subarray(total)
      isInData = verb === 'DATA'
      return { verb, line }
    }

    async function answerAll(): Promise<void> {
      let replies = ''
      for (const { verb, line } of commands.splice(0)) {
        const isFirst = verb === 'RSET' || (verb === 'MAIL' && lastVerb !== 'RSET')
        lastVerb = verb
        if (messagesToRead > 0 && isFirst) message++
        if (verb === 'RCPT') recipient = /<([^@]*)/.exec(line)?.[1] ?? ''
        const given = message < 0 ? undefined : script[`${String.fromCharCode(FIRST_LETTER + message)} ${verb}`]
        if (typeof given === 'function') {
          socket.write(replies)
          return given(socket)
        }
        if (typeof given === 'object') {
          socket.write(replies)
          replies = ''
          await given.after
        }
        const reply = typeof given === 'object' ? given.reply : given
        if (verb === 'BDAT' && (reply ?? '2').startsWith('2')) taken.push(recipient)
        replies += reply === '' ? '' : `${reply ?? USUAL[verb] ?? '250 2.0.0 ok'}\r\n`
      }
      if (!socket.destroyed) socket.write(Buffer.from(replies, 'latin1'))
    }

    look = (): void => {
      for (let command = read(); command !== undefined; command = read()) commands.push(command)
      const isWhole = commands.filter(({ verb }) => verb === 'BDAT').length >= messagesToRead
      if (isWhole && commands.length > 0) answering = answering.then(answerAll)
    }
    socket.on('data', (bytes: Buffer) => {
      input = Buffer.concat([input, bytes])
      look()
    })
  })
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.2', resolve))
  return {
    address: '127.0.0.2',
    port: (server.address() as AddressInfo).port,
    taken,
    begin(next, messages) {
      script = next
      messagesToRead = messages
      look()
    },
    say: (text) => void current?.write(text),
    close() {
      current?.destroy()
      server.close()
    },
  }
}
