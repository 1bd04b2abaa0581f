/**
 * The connections that a delivery thread may have at once, and whose turn it is to open one.
 *
 * | who asks                                | gets one                                                           |
 * | --------------------------------------- | ------------------------------------------------------------------ |
 * | while one is free and nobody waits      | at once                                                            |
 * | otherwise                               | in turn, one each time: urgent mail first, but for one turn in five |
 * | a few have begun in this turn of the    | in the next: what is under way, and whoever comes next, waits for  |
 * | event loop already                      | a few messages to be rendered, never for thousands                 |
 *
 * A small part is kept free: connections that wait for a row end, those that have waited longest first, so that who
 * comes next does not wait for their goodbye. Every step takes constant time, however many wait. Never throws.
 */
import { createTurnQueue } from '../protocol/stream-turns.ts'

export type ConnectionSlots<Sender extends SlotUser> = ReturnType<typeof createConnectionSlots<Sender>>

type NextTurn = (run: () => void) => void

export interface SlotUser {
  grow(): void
  /** Ends a connection that waits for a row; false: there is none. */
  retireIdle(): boolean
}

/** A few milliseconds of rendering. */
const BEGUN_PER_TURN = 8
const MOST_KEPT_FREE = 50
const PART_KEPT_FREE = 0.05
/** Connections that end at once to make room for others. */
const MOST_RETIRING = 50

export function createConnectionSlots<Sender extends SlotUser>(most: number, nextTurn: NextTurn = setImmediate) {
  const keptFree = Math.min(MOST_KEPT_FREE, Math.floor(most * PART_KEPT_FREE))
  const waiting = createTurnQueue<Sender>()
  /** Those with connections that wait for a row, and some that had. */
  const resting = new Set<Sender>()
  let used = 0
  /** Of these, those that end to make room. */
  let retiring = 0
  let begunInTurn = 0
  let isTurnPlanned = false
  let served: Sender | undefined

  const mayBegin = (): boolean => used < most && begunInTurn < BEGUN_PER_TURN
  const isWaitedFor = (): boolean => waiting.size() > 0

  function planTurn(): void {
    if (isTurnPlanned) return
    isTurnPlanned = true
    nextTurn(serve)
  }

  function serve(): void {
    isTurnPlanned = false
    begunInTurn = 0
    while (isWaitedFor() && mayBegin()) {
      served = waiting.take()
      served?.grow()
      served = undefined
    }
    if (isWaitedFor() && used < most) planTurn()
  }

  function makeRoom(): void {
    const isFull = used - retiring > most - keptFree || (used === most && retiring === 0 && isWaitedFor())
    if (!isFull || retiring >= MOST_RETIRING) return
    for (const sender of resting) {
      if (sender.retireIdle()) {
        retiring++
        return
      }
      resting.delete(sender)
    }
  }

  return {
    /** False: not now; its `grow` is called when its turn comes. */
    take(sender: Sender, isUrgent: boolean): boolean {
      const isInTurn = served === sender || !isWaitedFor()
      served = undefined
      if (!isInTurn || !mayBegin()) {
        waiting.add(sender, isUrgent)
        if (used < most) planTurn()
        makeRoom()
        return false
      }
      used++
      begunInTurn++
      planTurn()
      makeRoom()
      return true
    },
    release(): void {
      used--
      if (retiring > 0) retiring--
      if (isWaitedFor()) planTurn()
    },
    /** One of its connections waits for a row. */
    rests(sender: Sender): void {
      resting.delete(sender)
      resting.add(sender)
      makeRoom()
    },
    /** It needs none any more. */
    forget(sender: Sender): void {
      waiting.delete(sender)
      resting.delete(sender)
    },
  }
}
