/**
 * Whether mail is taken at all (http/README.md "Order of checks", step 1): not while the disk is nearly full or the
 * queue above its mark, nor while the store does not answer. Counting is spared: messages/README.md "Acceptance". Never
 * throws.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { SECOND, type Clock } from '../../base/clock.ts'
import type { Store } from '../../store/store.ts'

/** Why no mail is taken now; null: it is. */
export type MailRefusal = () => Promise<MailRefused | null>

export interface MailRefused {
  /** A clause. */
  reason: string
  /** When another try makes sense. */
  retryAfterSeconds: number
  /** Nothing is full: the store does not answer. */
  isStore?: true
}

interface MailRefusalOptions {
  store: Pick<Store, 'countQueued' | 'problem'>
  clock: Clock
  /** A clause; null: there is a disk with space for more than what is queued. */
  diskProblem: () => string | null
  /** The node is to hold nothing. Left out: never. */
  isDraining?: () => boolean
  /** Messages that may wait. */
  mostQueued: number
}

/** store/README.md "Full disk". */
const DISK_SECONDS = 60
/** A queue that is full empties within minutes. */
const QUEUE: MailRefused = { reason: 'the queue is full', retryAfterSeconds: 30 }
const STORE: MailRefused = { reason: 'the store does not answer', retryAfterSeconds: 2, isStore: true }
const DRAINING: MailRefused = { reason: 'this node drains', retryAfterSeconds: 2 }
/** So many times as long as counting took, its result holds; that it failed holds for a second. */
const HOLDS_TIMES = 20
/** Messages that come in a millisecond: more than the store of any machine accepts. */
const MOST_ACCEPTED = 50
/** Nobody's mail waits longer for a measurement, but for the first one. */
const LONGEST_WAIT = 10

export function createMailRefusal(options: MailRefusalOptions): MailRefusal {
  const { store, clock, diskProblem, mostQueued, isDraining = () => false } = options
  let refusal: MailRefused | null = null
  let measuredAt = Number.NEGATIVE_INFINITY
  let holdsMilliseconds = 0
  let running: Promise<void> | null = null

  async function measure(): Promise<void> {
    const startedAt = performance.now()
    const queued = await store.countQueued().catch(() => null)
    refusal = queued === null ? STORE : queued < mostQueued ? null : QUEUE
    measuredAt = clock.now()
    const fillsWithin = queued === null ? 0 : (mostQueued - queued) / MOST_ACCEPTED
    const spared = queued === null ? 0 : (performance.now() - startedAt) * HOLDS_TIMES
    holdsMilliseconds = Math.max(SECOND, fillsWithin, spared)
    running = null
  }

  return async () => {
    if (store.problem() !== null) return STORE
    if (isDraining()) return DRAINING
    const problem = diskProblem()
    if (problem !== null) return { reason: problem, retryAfterSeconds: DISK_SECONDS }
    const age = clock.now() - measuredAt
    // A clock that was set back counts as time that has passed.
    if (age >= 0 && age < holdsMilliseconds) return refusal
    running ??= measure()
    await (measuredAt === Number.NEGATIVE_INFINITY ? running : Promise.race([running, sleep(LONGEST_WAIT)]))
    return refusal
  }
}
