/**
 * The store as the main thread sees it, whatever the engine in its thread. When the store thread dies, every open and
 * later call is rejected and `onDeath` is told once: the process must end and recover as after a kill. What was called
 * before `close` is finished; whatever comes later is rejected. While the engine says that it is away, no call waits
 * for it: what has not been sent to the thread is rejected at once. Rejects with ProcessExit when the database cannot
 * be opened: see `openStore`.
 */
import { MessageChannel, Worker } from 'node:worker_threads'
import { EXIT, ProcessExit, ServiceError } from '../../base/errors.ts'
import { createThreadChannel, type ThreadChannel } from '../../base/threads/thread-channel.ts'
import type { EngineNote } from '../engine/open-engine.ts'
import type { OpenStoreOptions } from '../store-location.ts'
import type { Store } from '../store.ts'
import { createCommitTimes } from './commit-times.ts'
import type { CommitReport } from './group-commit.ts'
import { createStoreCalls } from './store-calls.ts'
import { CLOSE_CALL, type StoreThreadData, type StoreThreadMessage } from './thread-messages.ts'

type Opened = Extract<StoreThreadMessage, { kind: 'opened' }>

/** Starts the store thread, which opens the database and runs outstanding migrations. */
export async function openThreadedStore(options: OpenStoreOptions): Promise<Store> {
  const { port1, port2 } = new MessageChannel()
  const notes = new MessageChannel()
  const workerData: StoreThreadData = { location: options.location, verbs: port2, notes: notes.port2 }
  const entry = new URL('./store-thread.ts', import.meta.url)
  // Without the flags of the process: what they load (a debugger, a test runner) has no business here.
  const transferList = [port2, notes.port2]
  const worker = new Worker(entry, { workerData, transferList, name: 'store', execArgv: [] })
  options.metrics.watchThread('store', worker)
  const commits = createCommitTimes(options.metrics)
  const channel = createThreadChannel(port1, (note) => commits.hear(note as CommitReport))
  let state: 'opening' | 'open' | 'closing' = 'opening'
  let failure: Error | undefined
  const exited = watch(worker, (reason, code) => {
    if (code !== 0) failure = reason
    channel.fail(state === 'closing' ? storeClosed() : storeClosed(reason))
    port1.close()
    notes.port1.close()
    if (state === 'open') options.onDeath(reason)
  })
  const absence = createAbsence(options, (reason) => {
    // The call that ends the thread has to reach it.
    if (state !== 'closing') channel.rejectUnsent(reason)
  })
  const refusal = createRefusal(options)
  const heard = { away: absence.hear, refusal: refusal.hear }
  notes.port1.on('message', ({ kind, reason }: EngineNote) => heard[kind](reason))
  const { facts, warning, verbs } = await hearThread(worker, exited)
  state = 'open'
  options.logger.info(facts, 'store opened')
  if (warning !== null) options.logger.error(warning)

  const ask: ThreadChannel['call'] = (...asked) => {
    const problem = state === 'closing' ? storeClosed() : absence.error()
    return problem === null ? channel.call(...asked) : Promise.reject(problem)
  }
  const close = async (): Promise<void> => {
    state = 'closing'
    // The thread's end may be seen before its answer, and is as good: a close that fails is an error of the thread.
    channel.call(CLOSE_CALL, undefined).catch(() => {})
    await exited
    if (failure !== undefined) throw failure
  }
  const { tick, ...calls } = createStoreCalls(ask, verbs)
  return {
    ...calls,
    problem: absence.problem,
    refusal: refusal.reason,
    commitTime: commits.meanMilliseconds,
    // An engine that is away is known to be: a new process would not reach it either.
    tick: () => absence.orAway(tick()),
    close,
  }
}

/** Whether the engine answers, as it says itself: said once in the log for each reason, and seen by metrics. */
function createAbsence({ logger, metrics }: OpenStoreOptions, onAway: (reason: Error) => void) {
  let since: number | null = null
  const said = createSaid((reason) => logger.error({ reason }, NO_ANSWER))
  const waiting = new Set<() => void>()
  metrics.storeAnswers.set(1)
  const error = (): ServiceError | null =>
    since === null ? null : new ServiceError('unavailable', NO_ANSWER, { headers: { 'Retry-After': '2' } })
  return {
    error,
    problem: (): string | null => (since === null ? null : NO_ANSWER),
    /** As `asked`; resolves when it does not answer. */
    orAway: (asked: Promise<void>): Promise<void> =>
      new Promise((resolve, reject) => {
        waiting.add(resolve)
        const failed = (thrown: unknown): void => (since === null ? reject(thrown) : resolve())
        asked.then(resolve, failed).finally(() => waiting.delete(resolve))
      }),
    hear(problem: string | null): void {
      metrics.storeAnswers.set(problem === null ? 1 : 0)
      if (problem === null) {
        logger.info({ ms: Math.round(performance.now() - (since ?? 0)) }, 'the database answers again')
        since = null
        said.forget()
        return
      }
      said.say(problem)
      if (since !== null) return
      since = performance.now()
      metrics.storeAbsences.inc()
      for (const resolve of waiting) resolve()
      const reason = error()
      if (reason !== null) onAway(reason)
    },
  }
}

/** What the engine refuses to write while it answers, as a full disk of its server; said once in the log. */
function createRefusal({ logger }: OpenStoreOptions) {
  let reason: string | null = null
  const said = createSaid((reason) => logger.error({ reason }, 'the database refuses what is written'))
  return {
    reason: (): string | null => reason,
    hear(heard: string | null): void {
      reason = heard
      if (heard !== null) return said.say(heard)
      said.forget()
      logger.info('the database takes again what is written')
    },
  }
}

/** Each text once, until all are forgotten. */
function createSaid(say: (text: string) => void) {
  const texts = new Set<string>()
  return {
    say(text: string): void {
      if (!texts.has(text)) say(text)
      texts.add(text)
    },
    forget: () => texts.clear(),
  }
}

const NO_ANSWER = 'the database does not answer'

/** There is nothing to ask any more. */
function storeClosed(cause?: Error): ServiceError {
  return new ServiceError('unavailable', 'the store is closed', { cause })
}

/** Resolves when the thread has ended; `onEnd` gets the reason once, and 0 for an end that was asked for. */
function watch(worker: Worker, onEnd: (reason: Error, exitCode: number) => void): Promise<void> {
  let reason: Error | undefined
  worker.on('error', (error) => {
    reason ??= error instanceof Error ? error : new Error(String(error))
  })
  return new Promise((resolve) => {
    worker.on('exit', (code) => {
      onEnd(reason ?? new Error(`the store thread ended with code ${code}`), code)
      resolve()
    })
  })
}

/** Resolves when the thread has opened the database. */
function hearThread(worker: Worker, exited: Promise<void>): Promise<Opened> {
  return new Promise((resolve, reject) => {
    worker.once('message', (message: StoreThreadMessage) => {
      if (message.kind === 'opened') resolve(message)
      else reject(new ProcessExit(message.exitCode, message.sentence))
    })
    worker.once('error', (error) => {
      reject(new ProcessExit(EXIT.disk, 'the store thread failed while it opened the database', { cause: error }))
    })
    void exited.then(() => reject(new ProcessExit(EXIT.disk, 'the store thread ended while it opened the database')))
  })
}
