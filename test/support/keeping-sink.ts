/**
 * A receiving SMTP server that keeps what it takes, byte for byte, with its envelope; and that can be told to put mail
 * off for a while.
 */
import { startSmtpLineServer } from './smtp-line-server.ts'

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

export async function startKeepingSink(options: KeepingSinkOptions = {}): Promise<KeepingSink> {
  const { address = '127.0.0.1', onMail = async () => {} } = options
  const mails: KeptMail[] = []
  let isDeferring = false
  let deferrals = 0

  const server = await startSmtpLineServer(address, (socket) => {
    const source = socket.remoteAddress ?? ''
    let from = ''
    let to = ''
    const take = async (text: string): Promise<void> => {
      const mail = { from, to, source, bytes: Buffer.from(unstuffed(text), 'latin1') }
      await onMail(mail)
      mails.push(mail)
      socket.write('250 2.0.0 taken\r\n')
    }
    return {
      onCommand(verb, path) {
        if (verb === 'MAIL') [from, to] = [path, '']
        if (verb === 'RCPT' && isDeferring) {
          deferrals += 1
          return '451 4.3.0 come back later'
        }
        if (verb === 'RCPT') to = path
        return verb === 'DATA' && to === '' ? '554 5.5.1 no recipient' : undefined
      },
      onMail: take,
    }
  })
  return {
    port: server.port,
    mails,
    deferrals: () => deferrals,
    defer: (value) => void (isDeferring = value),
    close: server.close,
  }
}

/** A line that begins with a dot came with one more. */
function unstuffed(text: string): string {
  return text.replace(/^\.\./gm, '.') // two dots at the start of a line
}
