/**
 * What the taking SMTP servers of the tests share: they listen, cut the stream into command lines and mail bodies, and
 * speak the replies that every one of them gives.
 */
import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'

export interface SmtpDialogue {
  /**
   * The reply to MAIL, RCPT, DATA or RSET, undefined for the usual one, null for none at all. `path` stands in the angle
   * brackets.
   */
  onCommand(verb: string, path: string): string | undefined | null
  /**
   * A whole mail has come, as it was on the wire and without its final dot; the dialogue answers when it likes. What
   * the client sent behind the dot is read when this has resolved, so that the replies keep their order.
   */
  onMail(text: string): Promise<void>
  /** The client is gone, and had sent this mail whole before: nobody hears an answer. */
  onMailLeft?(text: string): void
  onClose?(): void
}

export interface SmtpLineServer {
  port: number
  close(): Promise<void>
}

const END_OF_DATA = '\r\n.\r\n'
const LINE_END = '\r\n'
const USUAL_REPLIES: Record<string, string> = {
  EHLO: '250-sink.test\r\n250-PIPELINING\r\n250 8BITMIME',
  DATA: '354 go on',
  QUIT: '221 2.0.0 bye',
}

export async function startSmtpLineServer(
  address: string,
  begin: (socket: Socket) => SmtpDialogue,
  port = 0,
  hasChunking = false,
): Promise<SmtpLineServer> {
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    sockets.add(socket)
    const dialogue = begin(socket)
    socket.on('error', () => socket.destroy())
    const readRest = converse(socket, dialogue, hasChunking)
    socket.on('close', () => {
      sockets.delete(socket)
      readRest()
      dialogue.onClose?.()
    })
  })
  server.listen(port, address)
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      server.close()
      for (const socket of sockets) socket.destroy()
      await once(server, 'close')
    },
  }
}

const EHLO_WITH_CHUNKING = '250-sink.test\r\n250-PIPELINING\r\n250-CHUNKING\r\n250 8BITMIME'
// The bytes behind the command belong to it.
const CHUNK = /^BDAT (\d+) LAST\r\n$/

/** Returns what reads the rest when the client is gone. */
function converse(socket: Socket, dialogue: SmtpDialogue, hasChunking: boolean): () => void {
  let isInData = false
  let isAnswering = false
  let buffer = ''
  const answer = (line: string): void => {
    const verb = line.slice(0, 4).toUpperCase()
    // The address between the angle brackets.
    const path = /<([^>]*)>/.exec(line)?.[1] ?? ''
    const given = dialogue.onCommand(verb, path)
    if (given === null) return
    const usual = verb === 'EHLO' && hasChunking ? EHLO_WITH_CHUNKING : USUAL_REPLIES[verb]
    const reply = given ?? usual ?? '250 2.0.0 ok'
    isInData = reply.startsWith('354')
    if (!socket.destroyed) socket.write(`${reply}\r\n`)
  }
  const take = (text: string): void => {
    isInData = false
    if (socket.destroyed) return dialogue.onMailLeft?.(text)
    isAnswering = true
    dialogue
      .onMail(text)
      .then(() => {
        isAnswering = false
        read()
      })
      .catch((thrown: Error) => socket.destroy(thrown))
  }
  const read = (): void => {
    while (!isAnswering || socket.destroyed) {
      const ending = isInData ? END_OF_DATA : LINE_END
      const end = buffer.indexOf(ending)
      if (end < 0) return
      // A body keeps the end of its last line.
      const text = buffer.slice(0, end + LINE_END.length)
      const size = isInData ? null : CHUNK.exec(text)
      const start = end + ending.length
      const length = Number(size?.[1] ?? 0)
      if (buffer.length < start + length) return
      const chunk = buffer.slice(start, start + length)
      buffer = buffer.slice(start + length)
      if (size !== null) take(chunk)
      else if (isInData) take(text)
      else answer(text)
    }
  }
  socket.on('data', (bytes) => {
    buffer += bytes.toString('latin1')
    read()
  })
  socket.write('220 sink.test ESMTP\r\n')
  return read
}
