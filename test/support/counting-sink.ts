/**
 * A receiving SMTP server that takes everything, slowly if asked, and counts: who arrived how often, from which IP, and
 * how many transactions are open at this moment.
 */
import { startSmtpLineServer } from './smtp-line-server.ts'

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

export async function startCountingSink(options: CountingSinkOptions = {}): Promise<CountingSink> {
  const { address = '127.0.0.1', answerDelayMilliseconds = 0 } = options
  const arrivals = new Map<string, number>()
  const sources = new Set<string>()
  let inFlight = 0

  const server = await startSmtpLineServer(address, (socket) => {
    let recipient = ''
    let isOpen = false
    const setOpen = (value: boolean): void => {
      if (value !== isOpen) inFlight += value ? 1 : -1
      isOpen = value
    }
    const take = (): void => {
      arrivals.set(recipient, (arrivals.get(recipient) ?? 0) + 1)
      setOpen(false)
      socket.write('250 2.0.0 taken\r\n')
    }
    sources.add(socket.remoteAddress ?? '')
    return {
      onCommand(verb, path) {
        if (verb === 'MAIL') setOpen(true)
        if (verb === 'RSET') setOpen(false)
        if (verb === 'RCPT') recipient = path
        return undefined
      },
      onMail: () => void setTimeout(take, answerDelayMilliseconds),
      onClose: () => setOpen(false),
    }
  })
  return { port: server.port, arrivals, sources, inFlight: () => inFlight, close: server.close }
}
