/**
 * A small SMTP client that says exactly what it is told, one line at a time, and keeps every reply.
 */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'

/** A command line, or the whole message behind DATA as CRLF lines. */
export type SmtpLine = string

export interface DialogueOptions {
  port: number
  localAddress?: string
}

/** Resolves with the replies: the greeting first, then one for each line. A multi-line reply is one text. */
export async function smtpDialogue({ port, localAddress }: DialogueOptions, lines: SmtpLine[]): Promise<string[]> {
  const socket = connect({ port, host: '127.0.0.1', ...(localAddress === undefined ? {} : { localAddress }) })
  await once(socket, 'connect')
  const replies: string[] = [await nextReply(socket)]
  for (const line of lines) {
    socket.write(`${line}\r\n`)
    replies.push(await nextReply(socket))
  }
  socket.destroy()
  return replies
}

/** A whole transaction; resolves with the reply to its last command that was sent. */
export async function sendMail(
  options: DialogueOptions & { from?: string; to: string; message: string },
): Promise<string> {
  const { from = 'bounces@acme.com', to, message } = options
  const replies = await smtpDialogue(options, [
    'EHLO mta1.sternpost.test',
    `MAIL FROM:<${from}>`,
    `RCPT TO:<${to}>`,
    'DATA',
    `${message}\r\n.`,
  ])
  return replies.at(-1) ?? ''
}

function nextReply(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    const finish = (): void => {
      socket.off('data', onData)
      socket.off('close', onClose)
    }
    const onClose = (): void => {
      finish()
      reject(new Error(`the connection ended after: ${text}`))
    }
    const onData = (chunk: Buffer): void => {
      text += chunk.toString()
      // The last line of a reply: three digits and a space (RFC 5321 §4.2).
      if (!/^\d{3} [^\r\n]*\r\n$/m.test(text)) return
      finish()
      resolve(text.trimEnd())
    }
    socket.on('data', onData)
    socket.on('close', onClose)
  })
}
