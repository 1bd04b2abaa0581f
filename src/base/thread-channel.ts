/**
 * Requests and replies between two threads, in batches.
 *
 * Calls made in one turn of the event loop travel as one message, and so do replies: posting costs about as much for
 * one item as for fifty. At most `MOST_BATCHES_UNDER_WAY` batches wait for an answer; later calls collect meanwhile,
 * which is the back pressure. A call whose handler throws is rejected with the same name, message and fields; when the
 * other thread is gone, every open call is rejected by `fail`.
 */
import { MessagePort, receiveMessageOnPort } from 'node:worker_threads'
import type { Worker } from 'node:worker_threads'
import { ServiceError } from './errors.ts'

export type Port = MessagePort | Worker

interface Call {
  id: number
  verb: string
  argument: unknown
}

interface Reply {
  id: number
  value?: unknown
  error?: PlainError
}

interface PlainError {
  name: string
  message: string
  stack: string | undefined
  code: string | undefined
  details: string | undefined
}

const MOST_BATCHES_UNDER_WAY = 4

export interface ThreadChannel {
  /** `moved`: blocks of memory in the argument that belong to the other thread from now on. */
  call(verb: string, argument: unknown, moved?: readonly ArrayBuffer[]): Promise<unknown>
  /** Takes the answers that lie in the port still, and rejects all that is open then, and every later call. */
  fail(reason: Error): void
}

/** The calling side. */
export function createThreadChannel(port: Port): ThreadChannel {
  const open = new Map<number, { resolve: (value: unknown) => void; reject: (reason: Error) => void }>()
  const sizes = new Map<number, number>()
  let collected: Call[] = []
  let collectedMoves: ArrayBuffer[] = []
  let isScheduled = false
  let nextId = 1
  let nextBatch = 1
  const batchOf = new Map<number, number>()
  let failure: Error | undefined

  const flush = (): void => {
    isScheduled = false
    if (collected.length === 0 || sizes.size >= MOST_BATCHES_UNDER_WAY) return
    const batch = nextBatch++
    sizes.set(batch, collected.length)
    for (const call of collected) batchOf.set(call.id, batch)
    port.postMessage(collected, collectedMoves)
    collected = []
    collectedMoves = []
  }

  port.on('message', (replies: Reply[]) => {
    for (const reply of replies) settle(reply)
    flush()
  })

  function settle(reply: Reply): void {
    const waiting = open.get(reply.id)
    const batch = batchOf.get(reply.id)
    if (waiting === undefined || batch === undefined) return
    open.delete(reply.id)
    batchOf.delete(reply.id)
    const left = (sizes.get(batch) ?? 1) - 1
    if (left > 0) sizes.set(batch, left)
    else sizes.delete(batch)
    if (reply.error === undefined) waiting.resolve(reply.value)
    else waiting.reject(revive(reply.error))
  }

  return {
    call(verb, argument, moved = []) {
      if (failure !== undefined) return Promise.reject(failure)
      return new Promise((resolve, reject) => {
        const id = nextId++
        open.set(id, { resolve, reject })
        collected.push({ id, verb, argument })
        collectedMoves.push(...moved)
        if (isScheduled) return
        isScheduled = true
        queueMicrotask(flush)
      })
    },
    fail(reason) {
      failure = reason
      // The end of a thread can be seen before its last answers.
      for (let last = answerIn(port); last !== undefined; last = answerIn(port)) for (const reply of last) settle(reply)
      for (const waiting of open.values()) waiting.reject(reason)
      open.clear()
    },
  }
}

function answerIn(port: Port): Reply[] | undefined {
  return port instanceof MessagePort ? receiveMessageOnPort(port)?.message : undefined
}

/** One call as the answering side sees it; exactly one of the two functions is called, once. */
export interface IncomingCall {
  verb: string
  argument: unknown
  resolve(value: unknown): void
  reject(thrown: unknown): void
}

/** The answering side: `onCalls` gets each batch as it arrives; replies of one turn travel together. */
export function answerThreadChannel(port: Port, onCalls: (calls: IncomingCall[]) => void): void {
  let replies: Reply[] = []
  const send = (reply: Reply): void => {
    if (replies.push(reply) > 1) return
    queueMicrotask(() => {
      port.postMessage(replies)
      replies = []
    })
  }
  port.on('message', (calls: Call[]) => {
    onCalls(
      calls.map(({ id, verb, argument }) => ({
        verb,
        argument,
        resolve: (value) => send({ id, value }),
        reject: (thrown) => send({ id, error: toPlain(thrown) }),
      })),
    )
  })
}

function toPlain(thrown: unknown): PlainError {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown))
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined
  const details = error instanceof ServiceError ? error.details : undefined
  return { name: error.name, message: error.message, stack: error.stack, code, details }
}

function revive(plain: PlainError): Error {
  const error = isServiceErrorCode(plain) ? new ServiceError(plain.code, plain.details) : new Error(plain.message)
  if (!(error instanceof ServiceError) && plain.code !== undefined) Object.assign(error, { code: plain.code })
  error.name = plain.name
  if (plain.stack !== undefined) error.stack = plain.stack
  return error
}

function isServiceErrorCode(plain: PlainError): plain is PlainError & { code: ServiceError['code'] } {
  return plain.name === 'ServiceError'
}
