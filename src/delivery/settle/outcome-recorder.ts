/**
 * Brings outcomes and returned rows into the store, in batches: all that came while the last batch was being committed,
 * or until somebody waits for it (`behind`).
 *
 * What the store could not take stays in memory and is tried again every second, for ever; meanwhile `isBlocked` is
 * true and nothing new may be claimed, so that memory stays bounded. Only a stop ends the patience: what the store has
 * not taken by then is found by the next start, as after a kill. store/README.md "What a kill may cause".
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { errorCode, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { ClaimedMessage, GiveBack, OutcomeRecord } from '../../store/records/claim-records.ts'
import type { ClaimHistory } from './claim-history.ts'
import type { WaitingFor } from '../../store/records/queue-records.ts'
import type { Store } from '../../store/store.ts'

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
  /** Rows whose outcome or return is not stored yet, or not there yet; `at`: since when. */
  held(): Iterable<{ message: ClaimedMessage; at: number }>
  isBlocked(): boolean
  /**
   * Calls `ask` when all that came before has been handed to the store, in this turn of the event loop if it takes it:
   * what is asked there shares its commit, and is not committed sooner. `stored` resolves when all that is stored, or
   * given up.
   */
  behind(ask: (stored: Promise<void>) => void): void
  /** Resolves when all that was handed over before, or is expected, is stored or given up. */
  stored(): Promise<void>
  /** Resolves when all is stored, or when the store has refused it for too long. */
  finish(): Promise<void>
}

interface OutcomeRecorderOptions {
  store: Pick<Store, 'recordOutcomes' | 'unclaim'>
  clock: Clock
  logger: Logger
  history: Pick<ClaimHistory, 'note'>
  /** These rows are not ours any more. */
  onStored: (rows: StoredRow[], hasEvents: boolean) => void
}

/**
 * Keeps one verb short: its group, and the acceptances in it, wait for all of it (store/README.md "Verbs and
 * transactions": 5 ms of work).
 */
const MOST_PER_BATCH = 50
const TRY_AGAIN_AFTER = SECOND
/** A stop waits no longer for a store that takes nothing. */
const LONGEST_FINISH = 10 * SECOND
const REFUSED = 'outcomes could not be stored'

export function createOutcomeRecorder(options: OutcomeRecorderOptions): OutcomeRecorder {
  const { store, clock, history, onStored } = options
  const expected = new Map<Promise<void>, { message: ClaimedMessage; at: number }>()
  const unstored = createUnstored()
  const sending = createSending({ ...options, unstored, storeOutcomes, storeReturned })
  let epoch = 0
  let came = 0

  async function storeOutcomes(batch: readonly Settled[]): Promise<() => void> {
    await store.recordOutcomes({ epoch, now: clock.now(), outcomes: batch.map(({ outcome }) => outcome) })
    const hasEvents = batch.some(({ outcome }) => outcome.events.length > 0)
    return () => onStored(batch.map(afterOutcome), hasEvents)
  }

  async function storeReturned(batch: readonly Returned[]): Promise<() => void> {
    const rows = batch.map(({ message: { key, claim }, how }) => ({ ...how, key, claim }))
    await store.unclaim({ epoch, rows })
    return () => onStored(batch.map(afterReturn), false)
  }

  function record(message: ClaimedMessage, outcome: OutcomeRecord): void {
    const settled = { number: ++came, at: clock.now(), message, outcome }
    unstored.add(settled)
    sending.outcome(settled)
  }

  async function stored(): Promise<void> {
    await Promise.all(expected.keys())
    await unstored.untilStored()
  }

  return {
    begin(newEpoch) {
      epoch = newEpoch
    },
    record,
    recordLater(message, pending) {
      const recording = pending.then((outcome) => record(message, outcome)).finally(() => expected.delete(recording))
      expected.set(recording, { message, at: clock.now() })
    },
    giveBack(message, how) {
      const back = { number: ++came, at: clock.now(), message, how }
      unstored.add(back)
      history.note('given back', message, how.waitingFor)
      sending.return(back)
    },
    *held() {
      yield* expected.values()
      yield* unstored.all()
    },
    isBlocked: sending.isBlocked,
    behind: sending.behind,
    stored,
    finish() {
      sending.giveUpAt(clock.now() + LONGEST_FINISH)
      return stored()
    },
  }
}

interface SendingOptions extends Pick<OutcomeRecorderOptions, 'clock' | 'logger'> {
  unstored: ReturnType<typeof createUnstored>
  /** Each resolves with what tells of the rows, when the store has taken them. */
  storeOutcomes: (batch: readonly Settled[]) => Promise<() => void>
  storeReturned: (batch: readonly Returned[]) => Promise<() => void>
}

/** Hands batches to the store, one after the other, and again each second what it refused. */
function createSending({ clock, logger, unstored, storeOutcomes, storeReturned }: SendingOptions) {
  /** Not with the store. */
  let outcomes: Settled[] = []
  let returned: Returned[] = []
  let asks: ((stored: Promise<void>) => void)[] = []
  /** Batches that the store works on. */
  let underWay = 0
  let isScheduled = false
  const patience = createPatience({ clock, logger, tryAgain: sendAll, giveUp: unstored.giveUp })

  function schedule(): void {
    if (isScheduled || patience.isResting()) return
    isScheduled = true
    // At once, with all that a thread has told in one message: the calls of a turn go to the store together anyway.
    queueMicrotask(() => {
      isScheduled = false
      if (!patience.isResting() && (underWay === 0 || asks.length > 0)) sendAll()
    })
  }

  function sendAll(): void {
    const [settled, back, asking] = [outcomes, returned, asks]
    outcomes = []
    returned = []
    asks = []
    for (const batch of batchesOf(settled)) send(batch, storeOutcomes, (failed) => void outcomes.unshift(...failed))
    for (const batch of batchesOf(back)) send(batch, storeReturned, (failed) => void returned.unshift(...failed))
    for (const ask of asking) ask(unstored.untilStored())
  }

  function send<Row extends Settled | Returned>(
    batch: Row[],
    storeRows: (batch: readonly Row[]) => Promise<() => void>,
    keep: (failed: Row[]) => void,
  ): void {
    underWay++
    storeRows(batch)
      .then(
        (tell) => {
          underWay--
          unstored.remove(batch)
          // Before the loop is told: it claims only when the store takes outcomes.
          patience.accepted()
          tell()
          unstored.tellWaiting()
        },
        (thrown: unknown) => {
          underWay--
          keep(batch)
          patience.refused(thrown, unstored.size())
        },
      )
      .finally(() => {
        if (outcomes.length + returned.length > 0) schedule()
      })
  }

  return {
    outcome(settled: Settled): void {
      outcomes.push(settled)
      schedule()
    },
    return(back: Returned): void {
      returned.push(back)
      schedule()
    },
    behind(ask: (stored: Promise<void>) => void): void {
      asks.push(ask)
      schedule()
    },
    isBlocked: patience.isBlocked,
    /** Patience with a store that refuses ends then. */
    giveUpAt: patience.endAt,
  }
}

interface PatienceOptions extends Pick<OutcomeRecorderOptions, 'clock' | 'logger'> {
  tryAgain: () => void
  giveUp: () => void
}

/** With a store that refuses: it is asked again each second, until the patience ends. */
function createPatience({ clock, logger, tryAgain, giveUp }: PatienceOptions) {
  let isBlocked = false
  let isResting = false
  let endsAt = Infinity
  return {
    accepted() {
      isBlocked = false
    },
    refused(thrown: unknown, waiting: number): void {
      isBlocked = true
      if (isResting) return
      logger.error({ code: errorCode(thrown), error: errorText(thrown), waiting }, REFUSED)
      isResting = true
      if (clock.now() >= endsAt) return giveUp()
      clock.after(TRY_AGAIN_AFTER, () => {
        isResting = false
        tryAgain()
      })
    },
    /** The last batch was refused. */
    isBlocked: () => isBlocked,
    /** Nothing is sent until it is tried again. */
    isResting: () => isResting,
    endAt(time: number): void {
      endsAt = time
    },
  }
}

/** What is not stored, in the order in which it came, and who waits until it is. */
function createUnstored() {
  const rows = new Set<Settled | Returned>()
  const waiting: { until: number; resolve: () => void }[] = []
  let newest = 0
  let isGivenUp = false
  return {
    add(row: Settled | Returned): void {
      rows.add(row)
      newest = row.number
    },
    remove(stored: readonly (Settled | Returned)[]): void {
      for (const row of stored) rows.delete(row)
    },
    all: () => rows,
    size: () => rows.size,
    /** Resolves when all that came so far is stored, or given up. */
    untilStored(): Promise<void> {
      if (isGivenUp || rows.size === 0) return Promise.resolve()
      return new Promise((resolve) => void waiting.push({ until: newest, resolve }))
    },
    tellWaiting() {
      if (waiting.length === 0) return
      const [oldest] = rows
      while (waiting[0] !== undefined && waiting[0].until < (oldest?.number ?? Infinity)) waiting.shift()?.resolve()
    },
    giveUp() {
      isGivenUp = true
      for (const { resolve } of waiting.splice(0)) resolve()
    },
  }
}

/** What came, counted from the start. */
interface Came {
  number: number
  at: number
  message: ClaimedMessage
}

interface Settled extends Came {
  outcome: OutcomeRecord
}

interface Returned extends Came {
  how: GiveBack
}

function batchesOf<Row>(rows: Row[]): Row[][] {
  if (rows.length <= MOST_PER_BATCH) return rows.length === 0 ? [] : [rows]
  return Array.from({ length: Math.ceil(rows.length / MOST_PER_BATCH) }, (_, index) =>
    rows.slice(index * MOST_PER_BATCH, (index + 1) * MOST_PER_BATCH),
  )
}

function afterOutcome({ message, outcome: { outcome } }: Settled): StoredRow {
  const dueAt = 'retryAt' in outcome ? outcome.retryAt : null
  // A try that never reached MAIL is no attempt.
  const isRetry = message.attempts > 0 || outcome.kind !== 'path-failed'
  return { message, dueAt, isRetry, route: message.route, waitingFor: 'retry_delay' }
}

function afterReturn({ message, how }: Returned): StoredRow {
  const { nextAt, route, waitingFor } = how
  return {
    message,
    dueAt: nextAt,
    isRetry: message.attempts > 0,
    route: route ?? message.route,
    waitingFor: waitingFor ?? null,
  }
}
