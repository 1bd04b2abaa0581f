/**
 * Brings outcomes and returned rows into the store, in batches: all that came while the last batch was being committed.
 *
 * What the store could not take stays in memory and is tried again every second, in order and for ever; meanwhile
 * `isBlocked` is true and nothing new may be claimed, so that memory stays bounded. Only a stop ends the patience: what
 * the store has not taken by then is found by the next start, as after a kill. Engine.md 3.5.
 */
import { SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorCode, errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { ClaimedMessage, OutcomeRecord, UnclaimRequest } from '../store/records.ts'
import type { WaitingFor } from '../store/queue-records.ts'
import type { Store } from '../store/store.ts'

/** What is said of a row that goes back to the queue without an attempt. */
export type GiveBack = Omit<UnclaimRequest['rows'][number], 'key'>

/** A row that the store has taken. */
export interface StoredRow {
  message: ClaimedMessage
  /** When it is due again, or null: it is final. */
  dueAt: number | null
  /** It stands among the retries now. */
  isRetry: boolean
  route: string
  /** Why it waits until then; null: nothing was said. */
  waitingFor: WaitingFor | null
}

export interface OutcomeRecorder {
  begin(epoch: number): void
  record(message: ClaimedMessage, outcome: OutcomeRecord): void
  /** As soon as it is there. */
  recordLater(message: ClaimedMessage, outcome: Promise<OutcomeRecord>): void
  /** Back to the queue without an attempt. */
  giveBack(message: ClaimedMessage, how: GiveBack): void
  isBlocked(): boolean
  /** Resolves when all outcomes that came before are with the store: what it is asked then is not committed sooner. */
  withStore(): Promise<void>
  /** Resolves when all outcomes that were handed over before are stored, or given up. */
  stored(): Promise<void>
  /** Resolves when all is stored, or when the store has refused it for too long. */
  finish(): Promise<void>
}

export interface OutcomeRecorderOptions {
  store: Pick<Store, 'recordOutcomes' | 'unclaim'>
  clock: Clock
  logger: Logger
  /** These rows are not ours any more. */
  onStored: (rows: StoredRow[], hasEvents: boolean) => void
}

/** Keeps one transaction short (engine.md 3.2: a group ends at 1,000 rows). */
const MOST_PER_BATCH = 500
const TRY_AGAIN_AFTER = SECOND
/** A stop waits no longer for a store that takes nothing. */
const LONGEST_FINISH = 10 * SECOND

export function createOutcomeRecorder(options: OutcomeRecorderOptions): OutcomeRecorder {
  const { store, clock, logger, onStored } = options
  let epoch = 0
  let outcomes: Settled[] = []
  let returned: { message: ClaimedMessage; how: GiveBack }[] = []
  const expected = new Set<Promise<void>>()
  let isBlocked = false
  let giveUpAt = Infinity
  let running: Promise<void> | undefined
  /** Outcomes since the start: handed over, with the store, stored. */
  let handed = 0
  let asked = 0
  let done = 0
  let waiting: { until: number; count: () => number; resolve: () => void }[] = []

  const run = async (): Promise<void> => {
    // Lets all that comes in this turn of the event loop travel together.
    await Promise.resolve()
    while (outcomes.length + returned.length > 0) {
      if (await storeBatch()) continue
      if (clock.now() >= giveUpAt) break
      await new Promise<void>((resolve) => void clock.after(TRY_AGAIN_AFTER, resolve))
    }
    running = undefined
    // Stored, or given up.
    for (const { resolve } of waiting.splice(0)) resolve()
  }
  const start = (): void => {
    running ??= run()
  }

  function waitFor(count: () => number): Promise<void> {
    if (count() >= handed) return Promise.resolve()
    return new Promise((resolve) => void waiting.push({ until: handed, count, resolve }))
  }

  function tellWaiting(): void {
    for (const { until, count, resolve } of waiting) if (until <= count()) resolve()
    waiting = waiting.filter(({ until, count }) => until > count())
  }

  function record(message: ClaimedMessage, outcome: OutcomeRecord): void {
    handed++
    outcomes.push({ message, outcome })
    start()
  }

  async function storeBatch(): Promise<boolean> {
    const parts = await Promise.allSettled([
      storeOutcomes(outcomes.slice(0, MOST_PER_BATCH)), storeReturned(returned.slice(0, MOST_PER_BATCH)),
    ])
    const failed = parts.find((part) => part.status === 'rejected')
    if (failed === undefined) return true
    const facts = { code: errorCode(failed.reason), error: errorText(failed.reason), waiting: outcomes.length }
    logger.error(facts, 'outcomes could not be stored')
    asked = done
    isBlocked = true
    return false
  }

  async function storeOutcomes(batch: typeof outcomes): Promise<void> {
    if (batch.length === 0) return
    const storing = store.recordOutcomes({ epoch, now: clock.now(), outcomes: batch.map(({ outcome }) => outcome) })
    asked = done + batch.length
    tellWaiting()
    await storing
    outcomes = outcomes.slice(batch.length)
    done += batch.length
    tellWaiting()
    // Before the loop is told: it claims only when the store takes outcomes.
    isBlocked = false
    onStored(batch.map(afterOutcome), batch.some(({ outcome }) => outcome.events.length > 0))
  }

  async function storeReturned(batch: typeof returned): Promise<void> {
    if (batch.length === 0) return
    await store.unclaim({ epoch, rows: batch.map(({ message, how }) => ({ ...how, key: message.key })) })
    returned = returned.slice(batch.length)
    isBlocked = false
    onStored(batch.map(({ message, how }) => ({
      message, dueAt: how.nextAt, isRetry: message.attempts > 0, route: how.route ?? message.route,
      waitingFor: how.waitingFor ?? null,
    })), false)
  }

  return {
    begin(newEpoch) {
      epoch = newEpoch
    },
    record,
    recordLater(message, pending) {
      const recording = pending.then((outcome) => record(message, outcome)).finally(() => expected.delete(recording))
      expected.add(recording)
    },
    giveBack(message, how) {
      returned.push({ message, how })
      start()
    },
    isBlocked: () => isBlocked,
    withStore: () => waitFor(() => asked),
    async stored() {
      await Promise.all(expected)
      await waitFor(() => done)
    },
    async finish() {
      giveUpAt = clock.now() + LONGEST_FINISH
      await Promise.all(expected)
      await running
    },
  }
}

interface Settled {
  message: ClaimedMessage
  outcome: OutcomeRecord
}

function afterOutcome({ message, outcome: { outcome } }: Settled): StoredRow {
  const dueAt = 'retryAt' in outcome ? outcome.retryAt : null
  // A try that never reached MAIL is no attempt.
  const isRetry = message.attempts > 0 || outcome.kind !== 'path-failed'
  return { message, dueAt, isRetry, route: message.route, waitingFor: 'retry_delay' }
}
