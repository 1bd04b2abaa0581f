/**
 * A receiving SMTP server that takes everything, slowly if asked, and counts: who arrived how often, under which
 * Message-ID, from which IP, and what is open at this moment. A mail whose final dot has come counts as taken, also
 * when its sender is gone before the answer.
 */
import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { startSmtpLineServer, type SmtpDialogue } from './smtp-line-server.ts'

export interface CountingSink {
  port: number
  /** Times each recipient's mail was taken with a 250 after its final dot. */
  arrivals: ReadonlyMap<string, number>
  /** Message-IDs under which each recipient's mail came. */
  messageIds: ReadonlyMap<string, ReadonlySet<string>>
  /** Source addresses seen. */
  sources: ReadonlySet<string>
  /** Source addresses of each recipient's mail. */
  sourcesOf: ReadonlyMap<string, ReadonlySet<string>>
  /** When the last mail came from a source address, by `performance.now()`. */
  lastFrom: ReadonlyMap<string, number>
  /** Open connections; of this source address, where it is named. */
  connections(from?: string): number
  /** Transactions between their MAIL and the answer to their final dot. */
  inFlight(): number
  /** MAIL commands so far. */
  begun(): number
  close(): Promise<void>
}

export interface CountingSinkOptions {
  address?: string
  /** Time from a final dot to its answer; a function is asked for each mail. */
  answerDelayMilliseconds?: number | (() => number)
  /** It offers CHUNKING. */
  hasChunking?: boolean
}

export async function startCountingSink(options: CountingSinkOptions = {}): Promise<CountingSink> {
  const { address = '127.0.0.1', answerDelayMilliseconds: delay = 0, hasChunking = false } = options
  const arrivals = new Map<string, number>()
  const messageIds = new Map<string, Set<string>>()
  const sources = new Set<string>()
  const sourcesOf = new Map<string, Set<string>>()
  const lastFrom = new Map<string, number>()
  const connections: string[] = []
  let inFlight = 0
  let begun = 0

  const begin = (socket: Socket): SmtpDialogue => {
    let recipient = ''
    let isOpen = false
    const source = socket.remoteAddress ?? ''
    const setOpen = (value: boolean): void => {
      if (value && socket.destroyed) return
      if (value !== isOpen) inFlight += value ? 1 : -1
      isOpen = value
    }
    const count = (text: string): void => {
      lastFrom.set(source, performance.now())
      sourcesOf.set(recipient, (sourcesOf.get(recipient) ?? new Set()).add(source))
      arrivals.set(recipient, (arrivals.get(recipient) ?? 0) + 1)
      messageIds.set(recipient, (messageIds.get(recipient) ?? new Set()).add(messageIdOf(text)))
    }
    connections.push(source)
    sources.add(source)
    return {
      onCommand(verb, path) {
        if (verb === 'MAIL') begun += 1
        if (verb === 'MAIL') setOpen(true)
        if (verb === 'RSET') setOpen(false)
        if (verb === 'RCPT') recipient = path
        return undefined
      },
      async onMail(text) {
        count(text)
        await sleep(typeof delay === 'number' ? delay : delay())
        setOpen(false)
        if (!socket.destroyed) socket.write('250 2.0.0 taken\r\n')
      },
      onMailLeft: count,
      onClose() {
        connections.splice(connections.indexOf(source), 1)
        setOpen(false)
      },
    }
  }
  const server = await startSmtpLineServer(address, begin, 0, hasChunking)
  return {
    port: server.port,
    arrivals,
    messageIds,
    sources,
    sourcesOf,
    lastFrom,
    connections: (from) => connections.filter((source) => from === undefined || source === from).length,
    inFlight: () => inFlight,
    begun: () => begun,
    close: server.close,
  }
}

/** What stands behind `Message-ID:`, also on a line of its own. */
function messageIdOf(text: string): string {
  return /^Message-ID:\s*(\S+)/im.exec(text)?.[1] ?? ''
}
