/**
 * The dot marks: the durable note that the final dot of a row may go out, committed before it does.
 *
 * What a thread asks for in one turn of its event loop is one verb. It goes to the store right behind the outcomes
 * that came sooner, to share their commit, and is answered when those are stored, too: so a connection has at most one
 * message whose dot is out and whose outcome is not committed. While the store can not commit, the question is asked
 * again every second, and no dot goes out: the thread gives up by itself and gives the row back. Rows whose mark was
 * answered are remembered until they come back: nobody knows whether their dots went out when their thread dies.
 * Engine.md 3.4.
 */
import { SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { errorCode, errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Store } from '../store/store.ts'

export interface DotMarks {
  /** A thread has sent the bodies of these rows, and holds their dots back. */
  ask(thread: number, id: number, keys: readonly number[]): void
  /** Its dot may have gone out. */
  isMarked(key: number): boolean
  /** The row has come back. */
  forget(key: number): void
  /** The last marks could not be committed. */
  isBlocked(): boolean
  stop(): void
}

export interface DotMarksOptions {
  store: Pick<Store, 'markDotSent'>
  clock: Clock
  logger: Logger
  epoch: number
  /** Calls back right behind the outcomes that came before; `stored` resolves when those are stored. */
  behindOutcomes: (ask: (stored: Promise<void>) => void) => void
  /** The row is in a thread still. */
  isWaitedFor: (key: number) => boolean
  answer: (thread: number, id: number, stale: number[]) => void
  /** Marks are committed again. */
  onUnblocked: () => void
}

interface Question {
  thread: number
  id: number
  keys: readonly number[]
}

const TRY_AGAIN_AFTER = SECOND

export function createDotMarks(options: DotMarksOptions): DotMarks {
  const { store, clock, logger, epoch } = options
  const marked = new Set<number>()
  let questions: Question[] = []
  let isScheduled = false
  let isBlocked = false
  let isStopped = false

  function schedule(): void {
    if (isScheduled) return
    isScheduled = true
    options.behindOutcomes((stored) => {
      isScheduled = false
      const batch = questions
      questions = []
      void commit(batch, stored)
    })
  }

  async function commit(batch: readonly Question[], stored: Promise<void>): Promise<void> {
    try {
      const { stale } = await store.markDotSent(epoch, batch.flatMap(({ keys }) => keys))
      await stored
      // What was given up was not stored.
      if (isStopped) return
      const refused = new Set(stale)
      for (const { thread, id, keys } of batch) {
        // A row that was given back meanwhile went back without a mark: nobody would know of its dot.
        const open = keys.filter((key) => !refused.has(key) && options.isWaitedFor(key))
        // Before the thread hears of it.
        for (const key of open) marked.add(key)
        options.answer(thread, id, keys.filter((key) => !open.includes(key)))
      }
      if (isBlocked) options.onUnblocked()
      isBlocked = false
    } catch (thrown) {
      const facts = { code: errorCode(thrown), error: errorText(thrown) }
      if (!isBlocked) logger.error(facts, 'dot marks could not be stored')
      isBlocked = true
      clock.after(TRY_AGAIN_AFTER, () => askAgain(batch))
    }
  }

  /** A question whose rows have all come back is over; its thread is told, which keeps it until then. */
  function askAgain(batch: readonly Question[]): void {
    if (isStopped) return
    for (const question of batch) {
      const { thread, id, keys } = question
      if (keys.some(options.isWaitedFor)) questions.push(question)
      else options.answer(thread, id, [...keys])
    }
    if (questions.length > 0) return schedule()
    isBlocked = false
    options.onUnblocked()
  }

  return {
    ask(thread, id, keys) {
      questions.push({ thread, id, keys })
      schedule()
    },
    isMarked: (key) => marked.has(key),
    forget: (key) => void marked.delete(key),
    isBlocked: () => isBlocked,
    stop() {
      isStopped = true
    },
  }
}
