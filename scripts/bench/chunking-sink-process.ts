/**
 * An SMTP server that offers CHUNKING and PIPELINING, takes everything and counts it: Postfix's smtp-sink knows no
 * BDAT. A process of its own. Argument: port. Tells its parent how many messages it has, 100 times a second at most.
 */
import { createServer, type Socket } from 'node:net'

const [port = 0] = process.argv.slice(2).map(Number)
const BACKLOG = 4_096
const TELL_EVERY_MILLISECONDS = 10
const END_OF_DATA = '\r\n.\r\n'
const REPLIES: Record<string, string> = {
  EHLO: '250-sink.test\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-ENHANCEDSTATUSCODES\r\n250 CHUNKING\r\n',
  MAIL: '250 2.1.0 ok\r\n',
  RCPT: '250 2.1.5 ok\r\n',
  DATA: '354 go on\r\n',
  BDAT: '250 2.0.0 queued\r\n',
  QUIT: '221 2.0.0 bye\r\n',
}
let messages = 0
let told = -1

function serve(socket: Socket): void {
  let input: Buffer = Buffer.alloc(0)
  let isInData = false

  /** Bytes of the first command with all that belongs to it; undefined: they are not all there. */
  function lengthOf(line: string, end: number): number | undefined {
    const size = line.startsWith('BDAT') ? Number(line.split(' ')[1]) : 0
    const length = end + (isInData ? END_OF_DATA.length : 2) + size
    return input.length < length ? undefined : length
  }

  function answer(): string | undefined {
    const end = input.indexOf(isInData ? END_OF_DATA : '\r\n')
    const line = end < 0 || isInData ? '' : input.toString('latin1', 0, end)
    const length = end < 0 ? undefined : lengthOf(line, end)
    if (length === undefined) return undefined
    input = input.subarray(length)
    const verb = line.slice(0, 4).toUpperCase()
    if (isInData || verb === 'BDAT') messages++
    isInData = verb === 'DATA'
    return REPLIES[verb] ?? '250 2.0.0 ok\r\n'
  }

  socket.on('error', () => socket.destroy()).write('220 sink.test ESMTP\r\n')
  socket.on('data', (bytes: Buffer) => {
    input = input.length === 0 ? bytes : Buffer.concat([input, bytes])
    let replies = ''
    for (let reply = answer(); reply !== undefined; reply = answer()) replies += reply
    if (replies !== '') socket.write(replies)
  })
}

createServer({ noDelay: true }, serve).listen(port, '127.0.0.1', BACKLOG, () => process.send?.(0))
setInterval(() => {
  if (messages !== told) process.send?.(messages)
  told = messages
}, TELL_EVERY_MILLISECONDS)
process.once('disconnect', () => process.exit(0))
