/**
 * Ports and workers of a simulated process: what is posted is copied at once and arrives later, in order, at the thread
 * on the other side.
 */
import { EventEmitter } from 'node:events'
import type { MessagePort, Worker } from 'node:worker_threads'
import { serveThread, type ServedThread } from '../../src/delivery/session/serve-thread.ts'
import type { ToThread } from '../../src/delivery/protocol/try-result.ts'
import type { Owner, VirtualTime } from './virtual-time.ts'

/** One direction between two threads. */
export type Link = (message: unknown, moved?: readonly ArrayBuffer[]) => void

/** What is under way between threads. */
export interface Traffic {
  underWay: number
}

export interface LinkOptions {
  time: VirtualTime
  to: Owner
  /** Milliseconds, asked for each message. */
  delay: () => number
  traffic: Traffic
  receive: (message: unknown) => void
}

export function createLink({ time, to, delay, traffic, receive }: LinkOptions): Link {
  let lastAt = 0
  return (message, moved = []) => {
    const copy: unknown = structuredClone(message, { transfer: [...moved] })
    lastAt = Math.max(lastAt, time.now() + delay())
    traffic.underWay++
    time.plan(lastAt - time.now(), to, () => {
      traffic.underWay--
      receive(copy)
    })
  }
}

/** Two ends of a channel, as `MessageChannel` makes them. */
export function createPorts(
  time: VirtualTime,
  owners: readonly [Owner, Owner],
  { delay, traffic }: Pick<LinkOptions, 'delay' | 'traffic'>,
): [MessagePort, MessagePort] {
  const [one, other] = [new EventEmitter(), new EventEmitter()]
  const connect = (from: EventEmitter, to: EventEmitter, owner: Owner): void => {
    const post = createLink({ time, to: owner, delay, traffic, receive: (message) => void to.emit('message', message) })
    Object.assign(from, { postMessage: post, close: () => {} })
  }
  connect(one, other, owners[1])
  connect(other, one, owners[0])
  return [one as unknown as MessagePort, other as unknown as MessagePort]
}

export interface SimulatedWorker {
  worker: Worker
  /** As by an error that nobody caught. */
  die(): void
}

export interface WorkerOptions extends Pick<LinkOptions, 'time' | 'delay' | 'traffic'> {
  /** The main thread of its process. */
  main: Owner
  threadId: number
  /** What it has beside its way to the main thread. */
  serve: (owner: Owner) => Omit<ServedThread, 'post' | 'end' | 'threadId'>
  /** What goes to it, as it is posted. */
  onPost: (message: ToThread) => void
}

/** A delivery thread: the real code of one, with other connections. */
export function createWorker(options: WorkerOptions): SimulatedWorker {
  const { time, delay, traffic, main, threadId } = options
  const owner = time.owner(`delivery ${threadId}`, { parent: main.parent ?? main, turnTime: main.turnTime })
  const events = new EventEmitter()
  const worker = Object.assign(events, { threadId, postMessage: (message: ToThread) => void message, terminate: exit })

  function exit(error?: Error): void {
    if (owner.isDead) return
    owner.isDead = true
    worker.threadId = -1
    time.plan(delay(), main, () => {
      if (error !== undefined) events.emit('error', error)
      events.emit('exit', error === undefined ? 0 : 1)
    })
  }

  const tell = createLink({
    time,
    to: main,
    delay,
    traffic,
    receive: (message) => void events.emit('message', message),
  })
  const receive = serveThread({ ...options.serve(owner), threadId, post: tell, end: async () => exit() })
  const post = createLink({ time, to: owner, delay, traffic, receive: (message) => receive(message as ToThread) })
  worker.postMessage = (message) => {
    options.onPost(message)
    post(message)
  }
  return { worker: worker as unknown as Worker, die: () => exit(new Error('a simulated death')) }
}
