/**
 * The delivery threads: starts them, hands them rows, collects their results, replaces one that died; what it had is
 * the dispatcher's to give back (`onDeath`). Three deaths within a minute are told to `onFatal`: something is wrong
 * that a new thread does not cure. Before `start`, what is sent to a thread is dropped, and nobody answers.
 * store/README.md "What a kill may cause".
 */
import type { Worker } from 'node:worker_threads'
import { MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { within } from '../base/within.ts'
import type { ThreadPlace } from '../mail/whereabouts.ts'
import type { DeliveryThreadSettings } from './session/delivery-thread.ts'
import type { FromThread, PathBatch, PathLimits, ThreadTurn, ToThread } from './protocol/try-result.ts'

export type DeliveryThreads = ReturnType<typeof createDeliveryThreads>

export type StartWorker = (settings: DeliveryThreadSettings) => Worker

interface DeliveryThreadsOptions {
  startWorker: StartWorker
  count: number
  settings: DeliveryThreadSettings
  clock: Clock
  logger: Logger
  onResults: (results: ThreadTurn['results']) => void
  /** The final dots of these rows wait until `marked` is called with the same id. */
  onMark: (thread: number, id: number, claims: number[]) => void
  onConnections: (notes: ThreadTurn['notes'], thread: number) => void
  /** A worker was started: the first one of this thread, or its successor. */
  onStart: (thread: number, worker: Worker) => void
  onDeath: (thread: number) => void
  onFatal: (error: Error) => void
}

/** So many deaths within this time end the process (store/README.md "What a kill may cause"). */
const MOST_DEATHS = 3
const DEATHS_COUNT_FOR = MINUTE
/** Drain, and then the wait of sessions after the final dot, in all (systemd/README.md "The unit"). */
export const LONGEST_STOP = 80 * SECOND
/** Of the question where a row is. */
const LONGEST_ANSWER = SECOND
const LONGEST_END = 5 * SECOND

export function createDeliveryThreads(options: DeliveryThreadsOptions) {
  const { clock, logger } = options
  const slots: ThreadSlot[] = []
  let deaths: number[] = []
  let isEnding = false

  function startSlot(thread: number): void {
    const worker = options.startWorker(options.settings)
    options.onStart(thread, worker)
    worker.once('error', (error) => {
      logger.error({ thread, error: errorText(error), stack: error.stack }, 'delivery thread died')
    })
    const onTurn = (turn: ThreadTurn): void => heed(options, thread, turn)
    slots[thread] = createThreadSlot(worker, onTurn, () => replace(thread))
  }

  function replace(thread: number): void {
    if (isEnding) return
    const now = clock.now()
    deaths = [...deaths.filter((at) => now - at < DEATHS_COUNT_FOR), now]
    options.onDeath(thread)
    if (deaths.length < MOST_DEATHS) return startSlot(thread)
    isEnding = true
    options.onFatal(new Error(`delivery threads died ${deaths.length} times within a minute`))
  }

  /** Between our clock and that of the machine, which is all that a thread can read. */
  const clockOffset = (): number => clock.now() - Date.now()

  return {
    start(): void {
      for (let thread = 0; thread < options.count; thread++) startSlot(thread)
    },
    dispatch: (thread: number, batches: PathBatch[]) =>
      slots[thread]?.post({ kind: 'dispatch', clockOffset: clockOffset(), batches }),
    /** The answer to `onMark`: committed, but for those that are not ours any more. Their dots go out at once. */
    marked: (thread: number, id: number, stale: number[]) =>
      slots[thread]?.post({ kind: 'marked', clockOffset: clockOffset(), id, stale }),
    /** What a path may use from its next message on; with 0 connections, rows that have not begun come back. */
    limit: (thread: number, pathKey: string, limits: PathLimits) =>
      slots[thread]?.post({ kind: 'limit', pathKey, ...limits }),
    /** Resolves when every thread has answered, or died meanwhile: then a new one takes its place. */
    async tick(): Promise<void> {
      await Promise.all(slots.map((slot) => slot.ask({ kind: 'tick' })))
    },
    /** Which rows a thread has, after the results of all others that it was given; null: it is dead. */
    async claimsOf(thread: number): Promise<ReadonlySet<number> | null> {
      const answer = await slots[thread]?.ask({ kind: 'claims' })
      return answer?.kind === 'claims' ? new Set(answer.claims) : null
    },
    /** Where a thread has this row; null: nowhere, or no more; undefined: it died, or does not answer. */
    async where(thread: number, claim: number): Promise<ThreadPlace | null | undefined> {
      const slot = slots[thread]
      if (slot === undefined) return undefined
      const answer = await within(slot.ask({ kind: 'where', claim }), LONGEST_ANSWER)
      return answer?.kind === 'where' ? answer.place : undefined
    },
    /**
     * Nothing new starts; resolves when all that runs has ended. A session that has not sent its final dot has the time
     * of the drain, one that waits for the answer to its dot the longest time from the start.
     */
    async drain(drainMilliseconds: number, longestMilliseconds = LONGEST_STOP): Promise<void> {
      isEnding = true
      for (const slot of slots) slot.post({ kind: 'drain' })
      const all = Promise.all(slots.map(({ drained }) => drained))
      if ((await within(all, drainMilliseconds)) !== undefined) return
      for (const slot of slots) slot.post({ kind: 'abort' })
      await within(all, longestMilliseconds - drainMilliseconds)
    },
    async end(): Promise<void> {
      isEnding = true
      await Promise.all(slots.map((slot) => slot.end()))
    },
  }
}

function heed(options: DeliveryThreadsOptions, thread: number, { notes, results, mark }: ThreadTurn): void {
  if (notes.length > 0) options.onConnections(notes, thread)
  if (results.length > 0) options.onResults(results)
  if (mark !== null) options.onMark(thread, mark.id, mark.claims)
}

/** One worker of a thread: its successor has a slot of its own. */
type ThreadSlot = ReturnType<typeof createThreadSlot>

type ThreadQuestion = { kind: 'tick' } | { kind: 'claims' } | { kind: 'where'; claim: number }

function createThreadSlot(worker: Worker, onTurn: (turn: ThreadTurn) => void, onExit: () => void) {
  const asked = new Map<number, (answer?: FromThread) => void>()
  const drained = Promise.withResolvers<void>()
  const ended = Promise.withResolvers<void>()
  let nextQuestion = 1
  worker.on('message', (message: FromThread) => {
    if (message.kind === 'turn') return onTurn(message.turn)
    if (message.kind === 'drained') return drained.resolve()
    asked.get(message.id)?.(message)
    asked.delete(message.id)
  })
  worker.once('exit', () => {
    drained.resolve()
    ended.resolve()
    for (const resolve of asked.values()) resolve()
    onExit()
  })
  const post = (message: ToThread): void => worker.postMessage(message)

  return {
    post,
    /** Undefined: it is dead, or dies before it answers. */
    ask(question: ThreadQuestion): Promise<FromThread | undefined> {
      // No answer and no exit will come any more.
      if (worker.threadId === -1) return Promise.resolve(undefined)
      const { promise, resolve } = Promise.withResolvers<FromThread | undefined>()
      const id = nextQuestion++
      asked.set(id, resolve)
      post({ ...question, id })
      return promise
    },
    /** Resolves when all that runs in it has ended, or with its death. */
    drained: drained.promise,
    async end(): Promise<void> {
      post({ kind: 'end' })
      const timer = setTimeout(() => void worker.terminate(), LONGEST_END)
      await ended.promise
      clearTimeout(timer)
    },
  }
}
