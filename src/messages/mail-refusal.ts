/**
 * Whether mail is taken at all (contract.md 2.1, step 1): not while the disk is nearly full or the queue above its
 * mark, nor while the store does not answer.
 *
 * The queue is measured when somebody asks, and not again for a second, or longer where measuring takes long: a queue
 * of millions is counted for a small share of the time. Whoever asks meanwhile waits for it a moment, and then goes by
 * what was found before. Never throws.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import type { Store } from '../store/store.ts'

/** Why no mail is taken now; null: it is. */
export type MailRefusal = () => Promise<Refusal | null>

export interface Refusal {
  /** A clause. */
  reason: string
  /** When another try makes sense. */
  retryAfterSeconds: number
}

export interface MailRefusalOptions {
  store: Pick<Store, 'queueSummary'>
  clock: Clock
  /** There is space on the disk for more than what is queued. */
  hasSpace: () => boolean
  /** Messages that may wait. */
  mostQueued: number
}

/** operations.md 12.5. */
const DISK: Refusal = { reason: 'the disk is nearly full', retryAfterSeconds: 60 }
/** A queue that is full empties within minutes. */
const QUEUE: Refusal = { reason: 'the queue is full', retryAfterSeconds: 30 }
const STORE: Refusal = { reason: 'the store does not answer', retryAfterSeconds: 30 }
/** So many times as long as a measurement took, its result holds. */
const HOLDS_TIMES = 20
/** Nobody's mail waits longer for a measurement, but for the first one. */
const LONGEST_WAIT = 10

export function createMailRefusal({ store, clock, hasSpace, mostQueued }: MailRefusalOptions): MailRefusal {
  let refusal: Refusal | null = null
  let measuredAt = Number.NEGATIVE_INFINITY
  let holdsMilliseconds = 0
  let running: Promise<void> | null = null

  async function measure(): Promise<void> {
    const startedAt = performance.now()
    refusal = await store.queueSummary(clock.now()).then(
      ({ waiting, sending }) => (waiting + sending < mostQueued ? null : QUEUE),
      () => STORE,
    )
    measuredAt = clock.now()
    holdsMilliseconds = Math.max(SECOND, (performance.now() - startedAt) * HOLDS_TIMES)
    running = null
  }

  return async () => {
    if (!hasSpace()) return DISK
    const age = clock.now() - measuredAt
    // A clock that was set back counts as time that has passed.
    if (age >= 0 && age < holdsMilliseconds) return refusal
    running ??= measure()
    await (measuredAt === Number.NEGATIVE_INFINITY ? running : Promise.race([running, sleep(LONGEST_WAIT)]))
    return refusal
  }
}
