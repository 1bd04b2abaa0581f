/**
 * Postfix's smtp-sink as the receiver that counts: it prints the number of messages it has taken as it goes.
 */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

export interface Sink {
  /** Resolves when the sink has every message; rejects after `deadlineMilliseconds`. */
  received(deadlineMilliseconds: number): Promise<void>
  stop(): Promise<void>
}

const LISTEN_BACKLOG = 256
const LOOK_EVERY_MILLISECONDS = 20

export function hasSmtpSink(): boolean {
  return spawnSync('smtp-sink', ['-h'], { stdio: 'ignore' }).error === undefined
}

export async function startSink(address: string, port: number, messages: number): Promise<Sink> {
  // It drops its rights, when it has some to drop.
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : []
  const child = spawn('smtp-sink', ['-c', ...user, `${address}:${port}`, String(LISTEN_BACKLOG)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const { promise: all, resolve: allAreThere } = Promise.withResolvers<boolean>()
  child.stdout.on('data', (text: Buffer) => {
    // The running counters, such as `sess=30 quit=29 mesg=30`; only the latest in this piece of output counts.
    const taken = [...text.toString().matchAll(/mesg=(\d+)/g)].at(-1)?.[1]
    if (Number(taken) >= messages) allAreThere(true)
  })
  const ended = once(child, 'exit')
  while (!(await accepts(address, port))) await sleep(LOOK_EVERY_MILLISECONDS)
  return {
    async received(deadlineMilliseconds) {
      const isDone = await Promise.race([all, sleep(deadlineMilliseconds, false, { ref: false })])
      if (!isDone) throw new Error(`the sink did not get ${messages} messages within ${deadlineMilliseconds} ms`)
    },
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return
      child.kill()
      await ended
    },
  }
}

function accepts(address: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port })
    socket.once('connect', () => resolve(socket.destroy() !== undefined))
    socket.once('error', () => resolve(false))
  })
}
