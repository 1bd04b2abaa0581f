/**
 * How many rows a path may have: by the pace at which it completes them, its rate and its gate; and what is remembered
 * of a path while it has no rows. Never throws. delivery/README.md "From the table to the wire" has the bounds.
 */
import { SECOND } from '../../base/clock.ts'
import { recentEntries } from '../../base/recent-entries.ts'
import type { OpenGate } from '../../egress/shaping/shaping.ts'
import type { PathFacts } from './path-facts.ts'

interface Speed {
  /** Rows completed in a millisecond of real time, lately. */
  pace: number
  /** Milliseconds between two messages when its rate holds it back; 0: it does not. */
  interval: number
  /** Messages that a connection has under way at once, as far as is known: its hosts have to know flights. */
  inFlight: number
  /** A connection came about, or nothing is to be learned of that. */
  isProven: boolean
}

export interface PathMemory extends Speed {
  facts: PathFacts
  thread: number
  counted: number
  countedSince: number
}

/** Rows of a path; `others`: those of them that are not transactional. */
type PathLoad = { all: number; others: number }

/** `underWay`: those in its thread. */
type ClaimLoad = PathLoad & { underWay: number }

const UNKNOWN_SPEED = { pace: 0, interval: 0, inFlight: 1 }
/** Rows of one path, whatever its pace. */
export const MOST_ROWS = 200
const AHEAD = 2 * SECOND
const IN_THREAD = 250
/** Beside those under way: one behind them, and one that is being rendered. */
const ROWS_BEHIND = 2
/** Rows that wait for tokens of a rate: what goes in so long. */
const AHEAD_OF_RATE = 5 * SECOND
/** The pace is taken anew after so long, in milliseconds of real time. */
const COUNT_FOR = 250
/** Paths that had rows: many more than there are connections by default. The longest unused are forgotten. */
const MOST_REMEMBERED = 20_000
/** Share that is free of a path with busy connections before more is claimed: small claims cost the most for a row. */
const LEAST_ROOM = 1 / 8
/** One in four is kept for transactional mail (delivery/README.md "Fairness"). */
const SHARE_OF_OTHERS = 0.75
const FEWEST_TO_SHARE = 4

export function createPathMemories(threads: number) {
  const memories = recentEntries<string, PathMemory>(MOST_REMEMBERED)
  let nextThread = 0

  return {
    /** Made when there is none: in turns, so that a few busy paths share the threads evenly. */
    of(facts: PathFacts): PathMemory {
      const known = memories.get(facts.key)
      if (known !== undefined) return known
      const thread = nextThread++ % threads
      const memory = { facts, thread, ...unknownSpeed(facts), counted: 0, countedSince: performance.now() }
      memories.set(facts.key, memory)
      return memory
    },
    /** The path has no rows any more; its memory counts as used just now. */
    keep(memory: PathMemory): void {
      const { key } = memory.facts
      // To ask for it makes it the latest, too.
      if (memories.get(key) === undefined) memories.set(key, memory)
    },
    find: (pathKey: string) => memories.peek(pathKey),
    /** To ask keeps nothing, for claims ask about more paths than they use. */
    speedOf: (facts: PathFacts): Speed => memories.peek(facts.key) ?? unknownSpeed(facts),
  }
}

/** The capture server is our own. A path to a whole provider has many sites: those that are silent hold up no others. */
const unknownSpeed = ({ route, shaped }: PathFacts): Speed => ({
  ...UNKNOWN_SPEED,
  isProven: shaped === null || shaped.provider === route,
})

/** Rows of a path whose hosts say nothing are held for minutes: until one answers, it has what one connection needs. */
const usable = ({ isProven }: Speed, { connections }: OpenGate): number => (isProven ? connections : 1)

export function countRow(memory: PathMemory): void {
  memory.counted++
  const now = performance.now()
  const elapsed = now - memory.countedSince
  if (elapsed < COUNT_FOR) return
  // After a rest the first count says nothing.
  memory.pace = elapsed < 4 * COUNT_FOR ? memory.counted / elapsed : 0
  memory.counted = 0
  memory.countedSince = now
}

export function mostOf(speed: Speed, gate: OpenGate): number {
  const { connections, messagesPerConnection, mostUnderWay } = gate
  const { interval, inFlight, isProven } = speed
  const pace = isProven ? speed.pace : 0
  const byPace = Math.max((inFlight + ROWS_BEHIND + 1) * usable(speed, gate), pace * AHEAD)
  const byRate = rowsOfRate(interval)
  const most = Math.min(2 * connections * messagesPerConnection, MOST_ROWS, mostUnderWay, byPace, byRate)
  return Math.max(1, Math.floor(most))
}

export function mostInThread(speed: Speed, gate: OpenGate): number {
  const byPace = Math.max((speed.inFlight + ROWS_BEHIND) * usable(speed, gate), speed.pace * IN_THREAD)
  return Math.floor(Math.min(mostOf(speed, gate), byPace))
}

/** How many more transactional rows fit beside those that are there. */
export function urgentRoom(most: number, { mostUnderWay }: OpenGate, { all, others }: PathLoad): number {
  const kept = Math.ceil(most * (1 - SHARE_OF_OTHERS)) - (all - others)
  return Math.max(0, Math.min(Math.max(most - all, kept), mostUnderWay - all))
}

function roomForOthers(most: number, { all, others }: PathLoad): number {
  const share = most < FEWEST_TO_SHARE ? most : Math.floor(most * SHARE_OF_OTHERS)
  return Math.max(0, Math.min(most - all, share - others))
}

export function roomToClaim(speed: Speed, gate: OpenGate, load: ClaimLoad, isUrgent: boolean): number {
  const most = mostOf(speed, gate)
  const room = isUrgent ? urgentRoom(most, gate, load) : roomForOthers(most, load)
  const isBusy = load.underWay >= Math.max(1, gate.connections)
  return isBusy && room < most * LEAST_ROOM ? 0 : room
}

export function rowsOfRate(interval: number): number {
  return interval === 0 ? Infinity : Math.max(1, Math.floor(AHEAD_OF_RATE / interval))
}
