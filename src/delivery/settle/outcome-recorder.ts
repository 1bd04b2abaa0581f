/**
 * Brings outcomes and returned rows into the store, in batches: all that came while the last batch was being committed,
 * or until somebody waits for it (`behind`). What the store could not take stays in memory and is tried again every
 * second, for ever; meanwhile `isBlocked` is true and nothing new may be claimed, so that memory stays bounded. Only a
 * stop ends the patience: the next start finds what is left, as after a kill. store/README.md "What a kill may cause".
 * Where the fault is not the store's, rows are tried one by one, and one that stays refused does not hold up the others:
 * it is logged, waits for the end of its lifetime, and is not sent again.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { errorCode, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import { within } from '../../base/within.ts'
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

export type OutcomeRecorder = ReturnType<typeof createOutcomeRecorder>

interface OutcomeRecorderOptions {
  store: Pick<Store, 'recordOutcomes' | 'unclaim'>
  clock: Clock
  /** Of the patience with the store. */
  realClock: Clock
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
/** One row alone, a second apart: longer than a stop waits. */
const MOST_REFUSALS = 20
/** One after the other: where it takes none at all, it is not the fault of rows. */
const MOST_GIVEN_UP = 3
/** Of a row that cannot be stored, or of a verb that throws: neither a full disk, nor a store that is away. */
const FAULT_OF_ROW = /^(SQLITE_(CONSTRAINT|MISMATCH|TOOBIG|RANGE|ERROR)|2[23]|ERR_|$)/
/** A stop waits no longer for a store that takes nothing, nor for one that does not answer. */
const LONGEST_FINISH = 10 * SECOND
const LONGEST_ANSWER = 30 * SECOND

export function createOutcomeRecorder(options: OutcomeRecorderOptions) {
  const { store, clock, realClock, history, onStored } = options
  const expected = new Map<Promise<void>, { message: ClaimedMessage; at: number }>()
  const unstored = createUnstored()
  const outcomes: Kind<Settled> = { rows: [], givenUp: 0, store: storeOutcomes }
  const returned: Kind<Returned> = { rows: [], givenUp: 0, store: storeReturned }
  const sending = createSending({ ...options, unstored, outcomes, returned, giveBack })
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
    const settled = { number: ++came, at: clock.now(), message, outcome, refusals: 0 }
    unstored.add(settled)
    outcomes.rows.push(settled)
    sending.schedule()
  }

  function giveBack(message: ClaimedMessage, how: GiveBack): void {
    const back = { number: ++came, at: clock.now(), message, how, refusals: 0 }
    unstored.add(back)
    history.note('given back', message, how.waitingFor)
    returned.rows.push(back)
    sending.schedule()
  }

  async function stored(): Promise<void> {
    await Promise.all(expected.keys())
    await unstored.untilStored()
  }

  return {
    begin: (newEpoch: number) => void (epoch = newEpoch),
    record,
    /** As soon as it is there. */
    recordLater(message: ClaimedMessage, pending: Promise<OutcomeRecord>): void {
      const recording = pending.then((outcome) => record(message, outcome)).finally(() => expected.delete(recording))
      expected.set(recording, { message, at: clock.now() })
    },
    /** Back to the queue without an attempt. */
    giveBack,
    /** Rows whose outcome or return is not stored yet, or not there yet; `at`: since when. */
    *held(): Iterable<{ message: ClaimedMessage; at: number }> {
      yield* expected.values()
      yield* unstored.all()
    },
    isBlocked: sending.isBlocked,
    /**
     * Calls `ask` when all that came before has been handed to the store, in this turn of the event loop if it takes
     * it: what is asked there shares its commit, and is not committed sooner. `stored` resolves when all that is
     * stored, or given up.
     */
    behind: sending.ask,
    /** Resolves when all that was handed over before, or is expected, is stored or given up. */
    stored,
    /** Resolves when all is stored, or when the store has refused it, or has not answered, for too long. */
    async finish(longest = LONGEST_ANSWER): Promise<void> {
      sending.giveUpAt(realClock.now() + LONGEST_FINISH)
      await within(stored(), Math.min(longest, LONGEST_ANSWER), realClock)
    },
  }
}

interface SendingOptions extends OutcomeRecorderOptions {
  unstored: ReturnType<typeof createUnstored>
  outcomes: Kind<Settled>
  returned: Kind<Returned>
  giveBack: (message: ClaimedMessage, how: GiveBack) => void
}

/** Rows that are not with the store; `store` resolves with what tells of them, when it has taken them. */
interface Kind<Row> {
  rows: Row[]
  /** Since the store took one of this kind. */
  givenUp: number
  store: (batch: readonly Row[]) => Promise<() => void>
}

/** Hands batches to the store, one after the other, and again each second what it refused, until its patience ends. */
function createSending(options: SendingOptions) {
  const { realClock, logger, unstored, outcomes, returned } = options
  const giveUpRow = createGiveUpRow(options, () => void (isBlocked = false))
  let asks: ((stored: Promise<void>) => void)[] = []
  /** Batches that the store works on. */
  let underWay = 0
  let isScheduled = false
  /** The last batch was refused. */
  let isBlocked = false
  /** Nothing is sent until it is tried again. */
  let isResting = false
  let patienceEndsAt = Infinity

  function schedule(): void {
    if (isScheduled || isResting) return
    isScheduled = true
    // At once, with all that a thread has told in one message: the calls of a turn go to the store together anyway.
    queueMicrotask(() => {
      isScheduled = false
      if (!isResting && (underWay === 0 || asks.length > 0)) sendAll()
    })
  }

  function sendAll(): void {
    const asking = asks
    asks = []
    for (const batch of batchesOf(outcomes.rows.splice(0))) send(batch, outcomes)
    for (const batch of batchesOf(returned.rows.splice(0))) send(batch, returned)
    for (const ask of asking) ask(unstored.untilStored())
  }

  function send<Row extends Settled | Returned>(batch: Row[], kind: Kind<Row>): void {
    underWay++
    const taken = (tell: () => void): void => {
      underWay--
      unstored.remove(batch)
      kind.givenUp = 0
      // Before the loop is told: it claims only when the store takes outcomes.
      isBlocked = false
      tell()
      unstored.tellWaiting()
    }
    const refused = (thrown: unknown): void => {
      underWay--
      if (FAULT_OF_ROW.test(errorCode(thrown))) for (const row of batch) row.refusals++
      const [row] = batch
      if (row !== undefined && row.refusals > MOST_REFUSALS && kind.givenUp < MOST_GIVEN_UP) {
        kind.givenUp++
        return giveUpRow(row, thrown)
      }
      kind.rows.unshift(...batch)
      rest(thrown)
    }
    const goOn = (): void => (outcomes.rows.length + returned.rows.length > 0 ? schedule() : undefined)
    kind.store(batch).then(taken, refused).finally(goOn)
  }

  function rest(thrown: unknown): void {
    const facts = { code: errorCode(thrown), error: errorText(thrown), waiting: unstored.size() }
    if (!isBlocked) logger.error(facts, 'outcomes could not be stored')
    isBlocked = true
    if (isResting) return
    isResting = true
    if (realClock.now() >= patienceEndsAt) return unstored.giveUp()
    realClock.after(TRY_AGAIN_AFTER, () => {
      isResting = false
      sendAll()
    })
  }

  return {
    schedule,
    ask(ask: (stored: Promise<void>) => void): void {
      asks.push(ask)
      schedule()
    },
    isBlocked: () => isBlocked,
    giveUpAt: (time: number) => void (patienceEndsAt = time),
  }
}

/** Of a row that was tried alone. A return that cannot be stored is nobody's from now on: `orphans.ts` finds its row. */
function createGiveUpRow({ logger, unstored, giveBack, onStored }: SendingOptions, unblock: () => void) {
  return (row: Settled | Returned, thrown: unknown): void => {
    const { message } = row
    const outcome = 'outcome' in row ? row.outcome.outcome.kind : 'returned'
    const facts = { message_id: message.id, outcome, code: errorCode(thrown), error: errorText(thrown) }
    logger.error(facts, 'what became of a message cannot be stored: it waits for the end of its lifetime')
    unstored.remove([row])
    const isInDoubt = outcome === 'delivered' || outcome === 'ambiguous'
    const how = { nextAt: message.expiresAt, ...(isInDoubt && { isPossibleDuplicate: true }) }
    if ('outcome' in row) giveBack(message, how)
    unstored.tellWaiting()
    if (unstored.size() > 0) return
    // No answer of the store will come that tells the loop to claim again.
    unblock()
    onStored([], false)
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
type Came = { number: number; at: number; message: ClaimedMessage; refusals: number }

type Settled = Came & { outcome: OutcomeRecord }
type Returned = Came & { how: GiveBack }

/** Those that were refused each for itself. */
function batchesOf<Row extends Came>(rows: Row[]): Row[][] {
  const together = rows.filter(({ refusals }) => refusals === 0)
  const batches = Array.from({ length: Math.ceil(together.length / MOST_PER_BATCH) }, (_, index) =>
    together.slice(index * MOST_PER_BATCH, (index + 1) * MOST_PER_BATCH),
  )
  return together.length === rows.length
    ? batches
    : [...rows.filter(({ refusals }) => refusals > 0).map((row) => [row]), ...batches]
}

function afterOutcome({ message, outcome: { outcome } }: Settled): StoredRow {
  const dueAt = 'retryAt' in outcome ? outcome.retryAt : null
  // A try that never reached MAIL is no attempt.
  const isRetry = message.attempts > 0 || outcome.kind !== 'path-failed'
  return { message, dueAt, isRetry, route: message.route, waitingFor: 'retry_delay' }
}

function afterReturn({ message, how }: Returned): StoredRow {
  const { nextAt: dueAt, route = message.route, waitingFor = null } = how
  return { message, dueAt, isRetry: message.attempts > 0, route, waitingFor }
}
