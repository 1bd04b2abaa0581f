/**
 * Postfix's smtp-sink as the receiver that counts: it prints the number of messages it has taken as it goes.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export interface Sink {
  readonly processId: number
  /** Messages so far. */
  taken(): number
  /** Resolves when the sink has so many messages; rejects after `deadlineMilliseconds`. */
  received(messages: number, deadlineMilliseconds: number): Promise<void>
  stop(): Promise<void>
}

const LISTEN_BACKLOG = 1_024
/** Connections at once; its default of 256 would be the result. */
const MOST_CONNECTIONS = 4_000
const LOOK_EVERY_MILLISECONDS = 20

export async function startSink(address: string, port: number): Promise<Sink> {
  // It drops its rights, when it has some to drop.
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : []
  const words = ['-c', '-m', String(MOST_CONNECTIONS), ...user, `${address}:${port}`, String(LISTEN_BACKLOG)]
  const child = spawn('smtp-sink', words, { stdio: ['ignore', 'pipe', 'inherit'] })
  let taken = 0
  let onTaken = (): void => {}
  child.stdout.on('data', (text: Buffer) => {
    // The running counters, such as `sess=30 quit=29 mesg=30`; only the latest in this piece of output counts.
    taken = Number([...text.toString().matchAll(/mesg=(\d+)/g)].at(-1)?.[1] ?? taken)
    onTaken()
  })
  const ended = once(child, 'exit')
  while (!(await accepts(address, port))) await sleep(LOOK_EVERY_MILLISECONDS)
  return {
    processId: child.pid ?? Number.NaN,
    taken: () => taken,
    async received(messages, deadlineMilliseconds) {
      const { promise: all, resolve: allAreThere } = Promise.withResolvers<boolean>()
      onTaken = () => {
        if (taken >= messages) allAreThere(true)
      }
      onTaken()
      const isDone = await Promise.race([all, sleep(deadlineMilliseconds, false, { ref: false })])
      if (!isDone) throw new Error(`the sink got ${taken} of ${messages} messages within ${deadlineMilliseconds} ms`)
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return
      child.kill()
      await ended
    },
  }
}

export function accepts(address: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port })
    socket.once('connect', () => resolve(socket.destroy() !== undefined))
    socket.once('error', () => resolve(false))
  })
}
