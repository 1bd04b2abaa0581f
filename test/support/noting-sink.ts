/**
 * A receiving SMTP server that notes every RCPT it hears with its source address and the time of a clock that is given,
 * and answers as the test says. Without a word of the test it takes everything.
 */
import { startSmtpLineServer } from './smtp-line-server.ts'

export interface NotedTry {
  at: number
  source: string
  recipient: string
  /** What ended it: the reply to RCPT, or else to the final dot; '' while there is none. */
  reply: string
}

export interface NotingSink {
  port: number
  tries: readonly NotedTry[]
  /** From now on: the reply to RCPT, or undefined where it is taken. */
  answerRecipients(reply: (recipient: string, source: string) => string | undefined): void
  /** The same for the final dot. */
  answerMail(reply: (recipient: string, source: string) => string | undefined): void
  close(): Promise<void>
}

const TAKEN = '250 2.0.0 taken'

export async function startNotingSink(now: () => number = Date.now): Promise<NotingSink> {
  const tries: NotedTry[] = []
  let toRecipient = (_recipient: string, _source: string): string | undefined => undefined
  let toMail = toRecipient

  const server = await startSmtpLineServer('127.0.0.1', (socket) => {
    const source = socket.remoteAddress ?? ''
    let current: NotedTry | undefined
    return {
      onCommand(verb, path) {
        if (verb === 'MAIL') current = undefined
        if (verb === 'DATA' && current === undefined) return '554 5.5.1 no valid recipients'
        if (verb !== 'RCPT') return undefined
        const noted: NotedTry = { at: now(), source, recipient: path, reply: '' }
        tries.push(noted)
        const refusal = toRecipient(path, source)
        noted.reply = refusal ?? ''
        current = refusal === undefined ? noted : undefined
        return refusal
      },
      async onMail() {
        const reply = toMail(current?.recipient ?? '', source) ?? TAKEN
        if (current !== undefined) current.reply = reply
        socket.write(`${reply}\r\n`)
      },
    }
  })
  return {
    port: server.port,
    tries,
    answerRecipients: (reply) => void (toRecipient = reply),
    answerMail: (reply) => void (toMail = reply),
    close: server.close,
  }
}
