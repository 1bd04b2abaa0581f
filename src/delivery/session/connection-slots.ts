/**
 * The connections that a delivery thread may have at once, and whose turn it is to open one.
 *
 * | who asks                                | gets one                                                           |
 * | --------------------------------------- | ------------------------------------------------------------------ |
 * | while one is free and nobody waits      | at once                                                            |
 * | otherwise                               | in turn, one each time: urgent mail first, but for one turn in five |
 * | for mail of a sending domain that has   | when it has fewer, and then before the others; they are not held up |
 * | nine times as many as are free          | meanwhile                                                           |
 * | a few have begun in this turn of the    | in the next: what is under way, and whoever comes next, waits for  |
 * | event loop already                      | a few messages to be rendered, never for thousands                 |
 *
 * Hosts may hold a connection for minutes, and a sending domain may write to thousands of them: it has at most nine tenths
 * of all, the next such domain as much of the rest. A connection counts for the domain that it was opened for.
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

/** A sending domain has at most so many times as many as are free. */
const MOST_OF_FREE = 9
/** A few milliseconds of rendering. */
const BEGUN_PER_TURN = 8
const MOST_KEPT_FREE = 50
const PART_KEPT_FREE = 0.05
/** Connections that end at once to make room for others. */
const MOST_RETIRING = 50

export function createConnectionSlots<Sender extends SlotUser>(most: number, nextTurn: NextTurn = setImmediate) {
  const keptFree = Math.min(MOST_KEPT_FREE, Math.floor(most * PART_KEPT_FREE))
  const waiting = createTurnQueue<Sender>()
  const shares = createShares<Sender>()
  const resting = createResting(shares)
  let used = 0
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
    while (mayBegin()) {
      served = shares.takeAside(most - used) ?? waiting.take()
      if (served === undefined) return
      served.grow()
      served = undefined
    }
    if (isWaitedFor() && used < most) planTurn()
  }

  function makeRoom(): void {
    const retiring = resting.retiring()
    if (used - retiring > most - keptFree || (used === most && retiring === 0 && isWaitedFor())) resting.retireOne()
    resting.retireOfShort()
  }

  return {
    /**
     * A connection for mail of one of these sending domains, the first that may have one; answers which. Undefined: not
     * now; `grow` of the sender is called when its turn comes.
     */
    take(sender: Sender, isUrgent: boolean, domains: readonly string[]): string | undefined {
      const isInTurn = (served === sender || !isWaitedFor()) && mayBegin()
      served = undefined
      const domain = isInTurn ? domains.find((each) => shares.mayHave(each, most - used)) : undefined
      if (domain !== undefined) {
        shares.add(domain)
        used++
        begunInTurn++
      } else if (isInTurn && domains[0] !== undefined) shares.setAside(domains[0], sender, isUrgent)
      else waiting.add(sender, isUrgent)
      if (used < most || domain !== undefined) planTurn()
      makeRoom()
      return domain
    },
    release(domain: string): void {
      used--
      shares.remove(domain)
      resting.hasEnded()
      if (isWaitedFor() || shares.isAnyAside()) planTurn()
    },
    /** One of its connections waits for a row. */
    rests(sender: Sender, domain: string): void {
      resting.add(sender, domain)
      makeRoom()
    },
    /** It needs none any more. */
    forget(sender: Sender): void {
      waiting.delete(sender)
      resting.leave(sender)
      shares.forget(sender)
    },
  }
}

type Shares<Sender> = ReturnType<typeof createShares<Sender>>

/** Connections that wait for a row, and may have to end. */
function createResting<Sender extends SlotUser>(shares: Shares<Sender>) {
  /** Those with such connections, and some that had; and for which sending domain the last one was opened. */
  const resting = new Map<Sender, string>()
  /** Connections that end to make room. */
  let retiring = 0

  function leave(sender: Sender): void {
    const domain = resting.get(sender)
    resting.delete(sender)
    if (domain !== undefined) shares.leavesRest(domain, sender)
  }

  function retireFrom(senders: Map<Sender, string> | Set<Sender>): void {
    if (retiring >= MOST_RETIRING) return
    for (const sender of senders.keys()) {
      if (sender.retireIdle()) {
        retiring++
        return
      }
      leave(sender)
    }
  }

  return {
    retiring: () => retiring,
    /** A connection has, whether for this or not. */
    hasEnded: () => void (retiring = Math.max(0, retiring - 1)),
    add(sender: Sender, domain: string): void {
      leave(sender)
      resting.set(sender, domain)
      shares.rests(domain, sender)
    },
    leave,
    /** The one that has waited longest. */
    retireOne: () => retireFrom(resting),
    /** Where others wait for the share of a domain, its own connections make room. */
    retireOfShort: () => shares.restingOfShort().forEach(retireFrom),
  }
}

/** What each sending domain has, and who waits because that is much. */
function createShares<Sender>() {
  interface Share {
    had: number
    aside: ReturnType<typeof createTurnQueue<Sender>>
    /** Those that have, or had, a connection of it without a row. */
    resting: Set<Sender>
  }
  const shares = new Map<string, Share>()
  /** Those where somebody waits. */
  const short = new Map<string, Share>()

  const of = (domain: string): Share => {
    const share = shares.get(domain) ?? { had: 0, aside: createTurnQueue<Sender>(), resting: new Set<Sender>() }
    shares.set(domain, share)
    return share
  }
  const mayHave = (domain: string, free: number): boolean => (shares.get(domain)?.had ?? 0) < MOST_OF_FREE * free

  return {
    mayHave,
    add: (domain: string) => void of(domain).had++,
    remove(domain: string): void {
      const share = of(domain)
      share.had--
      if (share.had === 0 && !short.has(domain)) shares.delete(domain)
    },
    setAside(domain: string, sender: Sender, isUrgent: boolean): void {
      of(domain).aside.add(sender, isUrgent)
      short.set(domain, of(domain))
    },
    isAnyAside: () => short.size > 0,
    /** One that waits for a domain which may have one more now. */
    takeAside(free: number): Sender | undefined {
      for (const [domain, share] of short) {
        if (!mayHave(domain, free)) continue
        short.delete(domain)
        const sender = share.aside.take()
        // Behind the other domains.
        if (share.aside.size() > 0) short.set(domain, share)
        return sender
      }
      return undefined
    },
    rests: (domain: string, sender: Sender) => void of(domain).resting.add(sender),
    leavesRest: (domain: string, sender: Sender) => void shares.get(domain)?.resting.delete(sender),
    /** Of each domain where somebody waits. */
    restingOfShort: () => [...short.values()].map(({ resting }) => resting),
    forget(sender: Sender): void {
      for (const [domain, { aside }] of short) {
        aside.delete(sender)
        if (aside.size() === 0) short.delete(domain)
      }
    },
  }
}
