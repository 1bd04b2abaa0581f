/**
 * Postfix's smtp-sink as the receiver that counts. It writes the number of messages it has taken to a file as it goes,
 * which is looked at from time to time: to be told of each message would cost the bench as much as to hand it over.
 */
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, fstatSync, mkdtempSync, openSync, readSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

export interface Sink {
  readonly processId: number
  /** Messages so far; not after `stop`. */
  taken(): number
  /** Resolves when the sink has so many messages; rejects after `deadlineMilliseconds`. */
  received(messages: number, deadlineMilliseconds: number): Promise<void>
  /** May be called again. */
  stop(): Promise<void>
}

const CHUNKING_SINK = fileURLToPath(new URL('./chunking-sink-process.ts', import.meta.url))
const LISTEN_BACKLOG = 1_024
/** Connections at once; its default of 256 would be the result. */
const MOST_CONNECTIONS = 4_000
/** So much longer, at most, a run seems to be. */
const LOOK_EVERY_MILLISECONDS = 10
/** Longer than two of its counts, such as `sess=30 quit=29 mesg=30`. */
const TAIL_BYTES = 256
const COUNT = 'mesg='

export async function startSink(address: string, port: number): Promise<Sink> {
  // It drops its rights, when it has some to drop.
  const user = process.getuid?.() === 0 ? ['-u', 'nobody'] : []
  const words = ['-c', '-m', String(MOST_CONNECTIONS), ...user, `${address}:${port}`, String(LISTEN_BACKLOG)]
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-bench-sink-'))
  const counts = openSync(join(folder, 'counts'), 'a+')
  const child = spawn('smtp-sink', words, { stdio: ['ignore', counts, 'inherit'] })
  const ended = once(child, 'exit')
  while (!(await accepts(address, port))) await sleep(LOOK_EVERY_MILLISECONDS)
  const taken = (): number => lastCount(counts)
  return {
    processId: child.pid ?? Number.NaN,
    taken,
    received: (messages, deadlineMilliseconds) => waitFor(taken, messages, deadlineMilliseconds),
    async stop() {
      if (child.exitCode !== null || child.signalCode !== null) return
      child.kill()
      await ended
      closeSync(counts)
      rmSync(folder, { recursive: true })
    },
  }
}

/** Offers CHUNKING with PIPELINING, as no sink of Postfix does. */
export async function startChunkingSink(port: number): Promise<Sink> {
  const child = fork(CHUNKING_SINK, [String(port)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  let count = 0
  child.on('message', (messages) => void (count = Number(messages)))
  await once(child, 'message')
  const taken = (): number => count
  return {
    processId: child.pid ?? Number.NaN,
    taken,
    received: (messages, deadlineMilliseconds) => waitFor(taken, messages, deadlineMilliseconds),
    async stop() {
      if (!child.connected) return
      const ended = once(child, 'exit')
      child.disconnect()
      await ended
    },
  }
}

async function waitFor(taken: () => number, messages: number, deadlineMilliseconds: number): Promise<void> {
  const end = performance.now() + deadlineMilliseconds
  while (taken() < messages) {
    if (performance.now() > end) {
      throw new Error(`the sink got ${taken()} of ${messages} messages within ${deadlineMilliseconds} ms`)
    }
    await sleep(LOOK_EVERY_MILLISECONDS)
  }
}

function lastCount(file: number): number {
  const tail = Buffer.alloc(TAIL_BYTES)
  const length = readSync(file, tail, 0, TAIL_BYTES, Math.max(0, fstatSync(file).size - TAIL_BYTES))
  // A count is whole when the carriage return behind it is there.
  const end = tail.lastIndexOf('\r', length)
  const start = tail.lastIndexOf(COUNT, end)
  return start < 0 ? 0 : Number(tail.toString('latin1', start + COUNT.length, end))
}

export function accepts(address: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port })
    socket.once('connect', () => resolve(socket.destroy() !== undefined))
    socket.once('error', () => resolve(false))
  })
}
