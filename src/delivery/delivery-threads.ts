/**
 * The delivery threads: starts them, hands them rows, collects their results, starts a new one for one that died.
 *
 * What a dead thread had is the dispatcher's to give back (`onDeath`). Three deaths within a minute, of whichever
 * thread, are told to `onFatal`: something is wrong that a new thread does not cure. src/README.md "The road of one
 * email", store/README.md "What a kill may cause".
 */
import type { Worker } from 'node:worker_threads'
import { MINUTE, SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { ThreadPlace } from '../mail/whereabouts.ts'
import type { DeliveryThreadSettings } from './session/delivery-thread.ts'
import type {
  FromThread,
  PathBatch,
  PathPlan,
  ThreadConnectionNote,
  ThreadTurn,
  ToThread,
  TryResult,
} from './protocol/try-result.ts'

export interface DeliveryThreads {
  dispatch(thread: number, batches: PathBatch[]): void
  /** The answer to `onMark`: committed, but for those that are not ours any more. Their dots go out at once. */
  marked(thread: number, id: number, stale: number[]): void
  /** What a path may use from now on, between two messages; 0 connections: what has not begun comes back. */
  limit(thread: number, pathKey: string, limits: Pick<PathPlan, 'connections' | 'messagesPerConnection'>): void
  /** Resolves when every thread has answered, or died meanwhile: then a new one takes its place. */
  tick(): Promise<void>
  /** Which rows a thread has, after the results of all others that it was given; null: it died meanwhile. */
  claimsOf(thread: number): Promise<ReadonlySet<number> | null>
  /** Where a thread has this row; null: nowhere, or no more; undefined: it died, or does not answer. */
  where(thread: number, claim: number): Promise<ThreadPlace | null | undefined>
  /**
   * Nothing new starts; resolves when all that runs has ended. Sessions before the final dot have the time of the
   * drain, those that wait for the answer to it what is left of the longest time, 80 s unless it is said.
   */
  drain(drainMilliseconds: number, longestMilliseconds?: number): Promise<void>
  end(): Promise<void>
}

export type StartWorker = (settings: DeliveryThreadSettings) => Worker

export interface DeliveryThreadsOptions {
  startWorker: StartWorker
  count: number
  settings: DeliveryThreadSettings
  clock: Clock
  logger: Logger
  onResults: (results: TryResult[]) => void
  /** The final dots of these rows wait until `marked` is called with the same id. */
  onMark: (thread: number, id: number, claims: number[]) => void
  onConnections: (notes: ThreadConnectionNote[], thread: number) => void
  /** A worker was started: the first one of this thread, or its successor. */
  onStart: (thread: number, worker: Worker) => void
  onDeath: (thread: number) => void
  onFatal: (error: Error) => void
}

interface Slot {
  worker: Worker
  ticks: Map<number, () => void>
  /** Who asked for its claims. */
  asking: Map<number, (claims: ReadonlySet<number> | null) => void>
  /** Who asked where a row is. */
  places: Map<number, (place?: ThreadPlace | null) => void>
  drained: (() => void) | undefined
}

/** So many deaths within this time end the process (store/README.md "What a kill may cause"). */
const MOST_DEATHS = 3
const DEATHS_COUNT_FOR = MINUTE
/** Drain, and then the wait of sessions after the final dot, in all (systemd/README.md "The unit"). */
const LONGEST_STOP = 80 * SECOND
/** Who asks where a row is waits no longer. */
const LONGEST_ANSWER = SECOND
/** A thread that does not end by itself is ended. */
const LONGEST_END = 5 * SECOND

export function createDeliveryThreads(options: DeliveryThreadsOptions): DeliveryThreads {
  const { clock, logger } = options
  let deaths: number[] = []
  let isEnding = false
  let nextQuestion = 1
  const slots = Array.from({ length: options.count }, (_, thread) => startSlot(thread))

  function startSlot(thread: number): Slot {
    const worker = options.startWorker(options.settings)
    const slot: Slot = { worker, ticks: new Map(), asking: new Map(), places: new Map(), drained: undefined }
    options.onStart(thread, slot.worker)
    slot.worker.on('message', (message: FromThread) => receive(thread, slot, message))
    slot.worker.once('error', (error) => {
      logger.error({ thread, error: errorText(error), stack: error.stack }, 'delivery thread died')
    })
    slot.worker.once('exit', () => bury(thread, slot))
    return slot
  }

  function receive(thread: number, slot: Slot, message: FromThread): void {
    switch (message.kind) {
      case 'turn':
        return heed(thread, message.turn)
      case 'tick':
        slot.ticks.get(message.id)?.()
        slot.ticks.delete(message.id)
        return
      case 'claims':
        slot.asking.get(message.id)?.(new Set(message.claims))
        slot.asking.delete(message.id)
        return
      case 'where':
        return slot.places.get(message.id)?.(message.place)
      case 'drained':
        return slot.drained?.()
    }
  }

  function heed(thread: number, { notes, results, mark }: ThreadTurn): void {
    if (notes.length > 0) options.onConnections(notes, thread)
    if (results.length > 0) options.onResults(results)
    if (mark !== null) options.onMark(thread, mark.id, mark.claims)
  }

  function bury(thread: number, slot: Slot): void {
    slot.drained?.()
    for (const resolve of slot.ticks.values()) resolve()
    for (const resolve of slot.asking.values()) resolve(null)
    for (const resolve of slot.places.values()) resolve()
    if (isEnding) return
    const now = clock.now()
    deaths = [...deaths.filter((at) => now - at < DEATHS_COUNT_FOR), now]
    options.onDeath(thread)
    if (deaths.length >= MOST_DEATHS) {
      isEnding = true
      options.onFatal(new Error(`delivery threads died ${deaths.length} times within a minute`))
      return
    }
    slots[thread] = startSlot(thread)
  }

  /** How far our clock is from that of the machine: a thread has no other way to know. */
  const clockOffset = (): number => clock.now() - Date.now()
  const post = (slot: Slot | undefined, message: ToThread): void => slot?.worker.postMessage(message)

  /** True when every thread has drained within the time. */
  async function untilDrained(waiting: Promise<void>, milliseconds: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined
    const timeUp = new Promise<false>((resolve) => {
      timer = setTimeout(resolve, milliseconds, false)
    })
    const isDrained = await Promise.race([waiting.then(() => true), timeUp])
    clearTimeout(timer)
    return isDrained
  }

  return {
    dispatch(thread, batches) {
      post(slots[thread], { kind: 'dispatch', clockOffset: clockOffset(), batches })
    },
    marked(thread, id, stale) {
      post(slots[thread], { kind: 'marked', clockOffset: clockOffset(), id, stale })
    },
    limit(thread, pathKey, { connections, messagesPerConnection }) {
      post(slots[thread], { kind: 'limit', pathKey, connections, messagesPerConnection })
    },
    async tick() {
      await Promise.all(
        slots.map(
          (slot) =>
            new Promise<void>((resolve) => {
              const id = nextQuestion++
              slot.ticks.set(id, resolve)
              post(slot, { kind: 'tick', id })
            }),
        ),
      )
    },
    claimsOf: (thread) =>
      new Promise((resolve) => {
        const slot = slots[thread]
        // Of a dead one no answer comes.
        if (slot === undefined || isDead(slot.worker)) return resolve(null)
        const id = nextQuestion++
        slot.asking.set(id, resolve)
        post(slot, { kind: 'claims', id })
      }),
    where(thread, claim) {
      const { promise, resolve } = Promise.withResolvers<ThreadPlace | null | undefined>()
      const slot = slots[thread]
      if (slot === undefined || isDead(slot.worker)) return Promise.resolve(undefined)
      const id = nextQuestion++
      const timer = setTimeout(resolve, LONGEST_ANSWER, undefined)
      slot.places.set(id, resolve)
      post(slot, { kind: 'where', id, claim })
      return promise.finally(() => {
        clearTimeout(timer)
        slot.places.delete(id)
      })
    },
    async drain(drainMilliseconds, longestMilliseconds = LONGEST_STOP) {
      isEnding = true
      const drained = slots.map(
        (slot) =>
          new Promise<void>((resolve) => {
            slot.drained = resolve
            post(slot, { kind: 'drain' })
            if (isDead(slot.worker)) resolve()
          }),
      )
      const all = Promise.all(drained).then(() => {})
      if (await untilDrained(all, drainMilliseconds)) return
      for (const slot of slots) post(slot, { kind: 'abort' })
      await untilDrained(all, longestMilliseconds - drainMilliseconds)
    },
    async end() {
      isEnding = true
      await Promise.all(slots.map(({ worker }) => endWorker(worker)))
    },
  }
}

function endWorker(worker: Worker): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => void worker.terminate(), LONGEST_END)
    worker.once('exit', () => {
      clearTimeout(timer)
      resolve()
    })
    worker.postMessage({ kind: 'end' } satisfies ToThread)
    if (isDead(worker)) {
      clearTimeout(timer)
      resolve()
    }
  })
}

/** It has ended: no answer and no exit will come any more. */
function isDead(worker: Worker): boolean {
  return worker.threadId === -1
}
