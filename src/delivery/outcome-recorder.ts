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
import type { OutcomeRecord, UnclaimRequest } from '../store/records.ts'
import type { Store } from '../store/store.ts'

export interface OutcomeRecorder {
  begin(epoch: number): void
  record(outcome: OutcomeRecord): void
  /** As soon as it is there. */
  recordLater(outcome: Promise<OutcomeRecord>): void
  /** Back to the queue without an attempt. */
  giveBack(key: number, nextAt: number): void
  /** Back to the queue, due now, from a holder that died: it may have been sent. */
  giveBackFromDead(key: number): void
  isBlocked(): boolean
  /** Resolves when all is stored, or when the store has refused it for too long. */
  finish(): Promise<void>
}

export interface OutcomeRecorderOptions {
  store: Pick<Store, 'recordOutcomes' | 'unclaim'>
  clock: Clock
  logger: Logger
  /** These rows are not ours any more. */
  onStored: (keys: number[], hasEvents: boolean) => void
}

/** Keeps one transaction short (engine.md 3.2: a group ends at 1,000 rows). */
const MOST_PER_BATCH = 500
const TRY_AGAIN_AFTER = SECOND
/** A stop waits no longer for a store that takes nothing. */
const LONGEST_FINISH = 10 * SECOND

export function createOutcomeRecorder(options: OutcomeRecorderOptions): OutcomeRecorder {
  const { store, clock, logger, onStored } = options
  let epoch = 0
  let outcomes: OutcomeRecord[] = []
  let returned: UnclaimRequest['rows'] = []
  const expected = new Set<Promise<void>>()
  let isBlocked = false
  let giveUpAt = Infinity
  let running: Promise<void> | undefined

  const run = async (): Promise<void> => {
    // Lets all that comes in this turn of the event loop travel together.
    await Promise.resolve()
    while (outcomes.length + returned.length > 0) {
      if (await storeBatch()) continue
      if (clock.now() >= giveUpAt) break
      await new Promise<void>((resolve) => void clock.after(TRY_AGAIN_AFTER, resolve))
    }
    running = undefined
  }
  const start = (): void => {
    running ??= run()
  }

  function record(outcome: OutcomeRecord): void {
    outcomes.push(outcome)
    start()
  }

  async function storeBatch(): Promise<boolean> {
    const batch = outcomes.slice(0, MOST_PER_BATCH)
    const rows = returned.slice(0, MOST_PER_BATCH)
    try {
      if (batch.length > 0) {
        await store.recordOutcomes({ epoch, now: clock.now(), outcomes: batch })
        outcomes = outcomes.slice(batch.length)
        // Before the loop is told: it claims only when the store takes outcomes.
        isBlocked = false
        onStored(batch.map(({ key }) => key), batch.some(({ events }) => events.length > 0))
      }
      if (rows.length > 0) {
        await store.unclaim({ epoch, rows })
        returned = returned.slice(rows.length)
        isBlocked = false
        onStored(rows.map(({ key }) => key), false)
      }
    } catch (thrown) {
      const facts = { code: errorCode(thrown), error: errorText(thrown), waiting: outcomes.length }
      logger.error(facts, 'outcomes could not be stored')
      isBlocked = true
      return false
    }
    return true
  }

  return {
    begin(newEpoch) {
      epoch = newEpoch
    },
    record,
    recordLater(pending) {
      const recording = pending.then(record).finally(() => expected.delete(recording))
      expected.add(recording)
    },
    giveBack(key, nextAt) {
      returned.push({ key, nextAt })
      start()
    },
    giveBackFromDead(key) {
      returned.push({ key, nextAt: clock.now(), isPossibleDuplicate: true })
      start()
    },
    isBlocked: () => isBlocked,
    async finish() {
      giveUpAt = clock.now() + LONGEST_FINISH
      await Promise.all(expected)
      await running
    },
  }
}
