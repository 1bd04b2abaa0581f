/**
 * Requests and replies between two threads, in batches (base/README.md "Threads"): posting costs about as much for one
 * item as for fifty. A call whose handler throws is rejected with the same name, message and fields. What the answering
 * side notes travels with its replies, in order.
 */
import { MessagePort, receiveMessageOnPort, type Worker } from 'node:worker_threads'
import { ServiceError } from '../errors.ts'

type ThreadPort = MessagePort | Worker

interface Call {
  id: number
  verb: string
  argument: unknown
}

interface Reply {
  /** Of the call; NOTE: nobody asked. */
  id: number
  value?: unknown
  error?: PlainError
}

const MOST_BATCHES_UNDER_WAY = 4
const NOTE = 0

interface OpenCall {
  resolve: (value: unknown) => void
  reject: (reason: Error) => void
  /** Shared by the calls that travel together: how many of them wait for their answer. */
  batch: { open: number }
}

export type ThreadChannel = ReturnType<typeof createThreadChannel>

/** The calling side; `onNote` gets what the other one notes, in order with the answers. */
export function createThreadChannel(port: ThreadPort, onNote: (note: unknown) => void = () => {}) {
  const open = new Map<number, OpenCall>()
  let collected: Call[] = []
  let collectedMoves: ArrayBuffer[] = []
  let batch = { open: 0 }
  let batchesUnderWay = 0
  let isScheduled = false
  let nextId = NOTE + 1
  let failure: Error | undefined

  const schedule = (): void => {
    if (isScheduled) return
    isScheduled = true
    // Once all sockets that have something now are heard: what they ask for belongs together.
    setImmediate(flush)
  }

  const flush = (): void => {
    isScheduled = false
    if (collected.length === 0 || batchesUnderWay >= MOST_BATCHES_UNDER_WAY) return
    port.postMessage(collected, collectedMoves)
    batchesUnderWay++
    batch = { open: 0 }
    collected = []
    collectedMoves = []
  }

  port.on('message', (replies: Reply[]) => {
    for (const reply of replies) settle(reply)
    if (collected.length > 0) schedule()
  })

  function settle({ id, value, error }: Reply): void {
    if (id === NOTE) return onNote(value)
    const call = open.get(id)
    if (call === undefined) return
    open.delete(id)
    call.batch.open--
    if (call.batch.open === 0) batchesUnderWay--
    if (error === undefined) call.resolve(value)
    else call.reject(revive(error))
  }

  return {
    /** `moved`: blocks of memory in the argument that belong to the other thread from now on. */
    call(verb: string, argument: unknown, moved: readonly ArrayBuffer[] = []): Promise<unknown> {
      if (failure !== undefined) return Promise.reject(failure)
      return new Promise((resolve, reject) => {
        const id = nextId++
        open.set(id, { resolve, reject, batch })
        batch.open++
        collected.push({ id, verb, argument })
        collectedMoves.push(...moved)
        schedule()
      })
    },
    /** Rejects what the other side has not got yet. */
    rejectUnsent(reason: Error): void {
      for (const { id } of collected) open.get(id)?.reject(reason)
      for (const { id } of collected) open.delete(id)
      collected = []
      collectedMoves = []
      batch = { open: 0 }
    },
    /** Takes the answers that lie in the port still, and rejects all that is open then, and every later call. */
    fail(reason: Error): void {
      failure = reason
      // The end of a thread can be seen before its last answers.
      for (let last = answerIn(port); last !== undefined; last = answerIn(port)) for (const reply of last) settle(reply)
      for (const call of open.values()) call.reject(reason)
      open.clear()
    },
  }
}

function answerIn(port: ThreadPort): Reply[] | undefined {
  return port instanceof MessagePort ? receiveMessageOnPort(port)?.message : undefined
}

/** One call as the answering side sees it; exactly one of the two functions is called, once. */
export interface IncomingCall {
  verb: string
  argument: unknown
  /** `moved`: blocks of memory in the value that belong to the calling thread from now on. */
  resolve(value: unknown, moved?: readonly ArrayBuffer[]): void
  reject(thrown: unknown): void
}

/**
 * The answering side: `onCalls` gets each batch as it arrives; replies of one turn travel together. What is returned
 * takes a note for the calling side.
 */
export function answerThreadChannel(
  port: ThreadPort,
  onCalls: (calls: IncomingCall[]) => void,
): (note: unknown) => void {
  let replies: Reply[] = []
  let moves: ArrayBuffer[] = []
  const send = (reply: Reply, moved: readonly ArrayBuffer[] = []): void => {
    moves.push(...moved)
    if (replies.push(reply) > 1) return
    queueMicrotask(() => {
      port.postMessage(replies, moves)
      replies = []
      moves = []
    })
  }
  port.on('message', (calls: Call[]) => {
    onCalls(
      calls.map(({ id, verb, argument }) => ({
        verb,
        argument,
        resolve: (value, moved) => send({ id, value }, moved),
        reject: (thrown) => send({ id, error: toPlain(thrown) }),
      })),
    )
  })
  return (note) => send({ id: NOTE, value: note })
}

/** Shorter blocks may share their memory with others, and cost little to copy. */
const LEAST_MOVED_BYTES = 64 * 1024

/** What is worth moving with these blocks. All other views of the memory are empty afterwards. */
export function memoryOf(blocks: readonly Uint8Array[]): ArrayBuffer[] {
  const long = blocks.filter(({ length }) => length >= LEAST_MOVED_BYTES)
  return [...new Set(long.map(({ buffer }) => buffer as ArrayBuffer))]
}

type PlainError = ReturnType<typeof toPlain>

function toPlain(thrown: unknown) {
  const error = thrown instanceof Error ? thrown : new Error(String(thrown))
  const code = 'code' in error && typeof error.code === 'string' ? error.code : undefined
  const { details, status } = error instanceof ServiceError ? error : { details: undefined, status: undefined }
  return { name: error.name, message: error.message, stack: error.stack, code, details, status }
}

function revive(plain: PlainError): Error {
  const error = isServiceErrorCode(plain)
    ? new ServiceError(plain.code, plain.details, plain)
    : new Error(plain.message)
  if (!(error instanceof ServiceError) && plain.code !== undefined) Object.assign(error, { code: plain.code })
  error.name = plain.name
  if (plain.stack !== undefined) error.stack = plain.stack
  return error
}

function isServiceErrorCode(plain: PlainError): plain is PlainError & { code: ServiceError['code'] } {
  return plain.name === 'ServiceError'
}
