/**
 * The dot marks: the durable note that the final dot of a row may go out, committed before it does.
 *
 * What a thread asks for in one turn of its event loop is one verb. It goes to the store right behind the outcomes that
 * came sooner, to share their commit, and is answered when those are stored, too: so a connection has at most one
 * message whose dot is out and whose outcome is not committed. While the store cannot commit, the question is asked
 * again every second, and no dot goes out: the thread gives up by itself and gives the row back. Rows whose mark was
 * answered are remembered until they come back: nobody knows whether their dots went out when their thread dies.
 *
 * A mark belongs to a claim. A claim that holds its row no more gets none, though a newer claim of this process does:
 * of two in hand, only the newer one sends its dot. When the older one was marked before its lease lapsed, its dot may
 * be out: whoever frees such a row (`recoverLapsedLeases`, a dead thread) marks it as a possible duplicate, and what is
 * heard of its dot later counts: `delivered` ends a row that waits. store/README.md "The dot mark and recovery".
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { errorCode, errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { Store } from '../../store/store.ts'

export type DotMarks = ReturnType<typeof createDotMarks>

interface DotMarksOptions {
  store: Pick<Store, 'markDotSent'>
  clock: Clock
  logger: Logger
  epoch: number
  /** Calls back right behind the outcomes that came before; `stored` resolves when those are stored. */
  behindOutcomes: (ask: (stored: Promise<void>) => void) => void
  /** The store's row of a claim that is in a thread still: it goes to one once, and leaves it once. */
  keyInThread: (claim: number) => number | undefined
  answer: (thread: number, id: number, stale: number[]) => void
  /** Marks are committed again. */
  onUnblocked: () => void
}

type Question = { thread: number; id: number; claims: readonly number[] }

const TRY_AGAIN_AFTER = SECOND
const NOT_STORED = 'dot marks could not be stored'

export function createDotMarks(options: DotMarksOptions) {
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

  const isWaitedFor = (claim: number): boolean => options.keyInThread(claim) !== undefined

  async function commit(batch: readonly Question[], stored: Promise<void>): Promise<void> {
    try {
      const claims = batch.flatMap((question) => question.claims)
      const rows = claims.flatMap((claim) => {
        const key = options.keyInThread(claim)
        return key === undefined ? [] : [{ key, claim }]
      })
      const { stale } = await store.markDotSent(epoch, rows)
      await stored
      // What was given up was not stored.
      if (isStopped) return
      const refused = new Set(stale)
      for (const { thread, id, claims: asked } of batch) {
        // A row that was given back meanwhile went back without a mark: nobody would know of its dot.
        const open = asked.filter((claim) => !refused.has(claim) && isWaitedFor(claim))
        // Before the thread hears of it.
        for (const claim of open) marked.add(claim)
        const closed = asked.filter((claim) => !open.includes(claim))
        options.answer(thread, id, closed)
      }
      const wasBlocked = isBlocked
      // Whoever is woken asks for it.
      isBlocked = false
      if (wasBlocked) options.onUnblocked()
    } catch (thrown) {
      if (!isBlocked) logger.error({ code: errorCode(thrown), error: errorText(thrown) }, NOT_STORED)
      isBlocked = true
      clock.after(TRY_AGAIN_AFTER, () => askAgain(batch))
    }
  }

  /** A question whose rows have all come back is over; its thread is told, which keeps it until then. */
  function askAgain(batch: readonly Question[]): void {
    if (isStopped) return
    for (const question of batch) {
      const { thread, id, claims } = question
      if (claims.some(isWaitedFor)) questions.push(question)
      else options.answer(thread, id, [...claims])
    }
    if (questions.length > 0) return schedule()
    isBlocked = false
    options.onUnblocked()
  }

  return {
    /** A thread has sent the bodies of these rows, and holds their dots back. */
    ask(thread: number, id: number, claims: readonly number[]): void {
      questions.push({ thread, id, claims })
      schedule()
    },
    /** Its dot may have gone out. */
    isMarked: (claim: number) => marked.has(claim),
    /** The row has come back. */
    forget: (claim: number) => void marked.delete(claim),
    /** The last marks could not be committed. */
    isBlocked: () => isBlocked,
    stop: () => void (isStopped = true),
  }
}
