/**
 * A receiving SMTP server that writes down in which order mail came, and of which sending domain; it can be stopped in
 * front of its answers, so that a test looks at what is under way without any time passing.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { startSmtpLineServer } from './smtp-line-server.ts'

export interface Arrival {
  /** Of the envelope sender, `bounces.` left out. */
  domain: string
  recipient: string
  /** The IP it came from. */
  source: string
  /** By the machine's clock, in milliseconds. */
  at: number
}

export interface OrderingSink {
  port: number
  /** Mail that was taken, the first one first. */
  arrivals: readonly Arrival[]
  /** Mail whose final dot has come and that waits for its answer, while `hold` is on. */
  held(): number
  /** Answers to final dots wait for `release`. */
  hold(): void
  release(): void
  close(): Promise<void>
}

export interface OrderingSinkOptions {
  address?: string
  /** The same as another sink's; else any. */
  port?: number
  /** Time from a final dot to its answer. */
  answerDelayMilliseconds?: number
  /** In place of taking it: the reply to the final dot. */
  refuse?: (recipient: string) => string | undefined
  /** In place of the usual reply to a command. */
  onCommand?: (verb: string, path: string) => string | undefined
}

export async function startOrderingSink(options: OrderingSinkOptions = {}): Promise<OrderingSink> {
  const { address = '127.0.0.2', answerDelayMilliseconds = 0 } = options
  const arrivals: Arrival[] = []
  const waiting: (() => void)[] = []
  let isHolding = false

  const server = await startSmtpLineServer(
    address,
    (socket) => {
      let domain = ''
      let recipient = ''
      const source = socket.remoteAddress ?? ''
      const answer = (): void => {
        const refusal = options.refuse?.(recipient)
        if (refusal === undefined) arrivals.push({ domain, recipient, source, at: performance.now() })
        socket.write(`${refusal ?? '250 2.0.0 taken'}\r\n`)
      }
      return {
        onCommand(verb, path) {
          if (verb === 'MAIL') domain = path.slice(path.indexOf('@') + 1).replace(/^bounces\./, '')
          const refusal = options.onCommand?.(verb, path)
          if (verb === 'RCPT') recipient = refusal === undefined ? path : ''
          return verb === 'DATA' && recipient === '' ? '503 5.5.1 no valid recipients' : refusal
        },
        async onMail() {
          if (isHolding) await new Promise<void>((resolve) => void waiting.push(resolve))
          else if (answerDelayMilliseconds > 0) await sleep(answerDelayMilliseconds, undefined, { ref: false })
          answer()
        },
      }
    },
    options.port,
  )
  return {
    port: server.port,
    arrivals,
    held: () => waiting.length,
    hold() {
      isHolding = true
    },
    release() {
      isHolding = false
      for (const resolve of waiting.splice(0)) resolve()
    },
    close: server.close,
  }
}
