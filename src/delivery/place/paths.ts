/**
 * The paths (egress IP, route) as the dispatcher sees them: claimed rows that wait for one, rows in its thread, and how
 * many more it takes.
 *
 * | bound                      | is                                                                              |
 * | -------------------------- | ------------------------------------------------------------------------------- |
 * | rows of a path in all      | what it completes in 2 s, at least 4 x connections, at most 200                 |
 * | of these in its thread     | what it completes in 250 ms, at least 3 x connections, and as its rate allows;  |
 * |                            | so many transactional ones, and so many others: there they take turns           |
 * | of these not transactional | three quarters; a path that takes fewer than it did is full of them for a       |
 * |                            | while: the quarter, at least one row, is free for the others all the same       |
 *
 * A path belongs to one thread, so that its connections can be used again. Rows that can not go soon after all (the
 * path was closed, its rate lowered) come back with the time. Nothing here waits or throws. delivery/README.md "From
 * the table to the wire" and "Fairness", egress/README.md "Rates".
 */
import { MINUTE, SECOND } from '../../base/clock.ts'
import type { Clock } from '../../base/clock.ts'
import { recentEntries } from '../../base/recent-entries.ts'
import { SHORT_WAIT } from '../../egress/shaping/shaping.ts'
import type { Gate, OpenGate, Tokens } from '../../egress/shaping/shaping.ts'
import type { PathFacts } from './path-facts.ts'
import type { Closure } from './closure.ts'
import { createStreamTurns } from '../protocol/stream-turns.ts'
import type { StreamTurns } from '../protocol/stream-turns.ts'

export interface PathRow {
  claim: number
  facts: PathFacts
  /** Transactional: it goes before all that are not. */
  isUrgent: boolean
  expiresAt: number
  /** A suspended path or sending domain is tried out with it (egress/README.md "Suspension ladder"). */
  isProbe: boolean
}

export interface ReadyRows<Row> {
  thread: number
  /** The path's gate, as it was when they were taken. */
  gate: OpenGate
  rows: Row[]
}

export interface PathLimit {
  thread: number
  pathKey: string
  connections: number
  messagesPerConnection: number
}

export interface TakenRows<Row> {
  /** To their threads, now. */
  ready: ReadyRows<Row>[]
  /** Their lifetime ended while they waited. */
  expired: Row[]
  /** They can not go soon. */
  returned: { row: Row; closure: Closure & { until: number } }[]
  /** Threads that have rows of a path whose limits have changed. 0 connections: it is suspended. */
  limits: PathLimit[]
}

export interface Paths<Row extends PathRow> {
  add(row: Row): void
  /** What to do with the rows of paths that changed. */
  take(): TakenRows<Row>
  /** When rows that wait can go by time alone; null: only an event can tell. */
  nextAt(): number | null
  /** A row has come back from its thread. */
  settle(row: Row): void
  /** Something about this path has changed. */
  touch(facts: PathFacts): void
  touchAll(): void
  /** How many more rows it takes, of a gate that is open. */
  roomOf(facts: PathFacts, gate: OpenGate, isUrgent: boolean): number
  /** It takes a row that was claimed already: more than it should have are not turned away at once. */
  hasRoom(facts: PathFacts, gate: OpenGate): boolean
  /** While its rate lets nothing through: it takes as many rows as go in a few seconds. */
  takesMore(facts: PathFacts, chosenBefore: number): boolean
  /** Undefined: it had no rows lately. Connections that rest still tell of their path. */
  factsOf(pathKey: string): PathFacts | undefined
  /** Connections that nothing is under way for. */
  freeSlots(facts: PathFacts, gate: OpenGate): number
  /** What waits for room in its path. */
  held(): Iterable<Row>
  /** Everything that has not gone to a thread. */
  takeWaiting(): Row[]
}

export interface PathsOptions {
  clock: Clock
  threads: number
  gateOf: (facts: PathFacts) => Gate
  takeTokens: (facts: PathFacts, count: number) => Tokens
}

interface Path<Row> {
  memory: Memory
  urgent: Row[]
  others: Row[]
  /** No row that waits ends before. */
  endsFrom: number
  turns: StreamTurns
  underWay: number
  /** Of these, those that are not urgent. */
  othersUnderWay: number
  /** What its thread was told last. */
  told: { connections: number; messagesPerConnection: number } | undefined
}

interface Speed {
  /** Rows completed in a millisecond of real time, lately. */
  pace: number
  /** Milliseconds between two messages when its rate holds it back; 0: it does not. */
  interval: number
}

/** What is worth knowing of a path without rows. */
interface Memory extends Speed {
  /** Of its last row. */
  facts: PathFacts
  thread: number
  counted: number
  countedSince: number
}

const UNKNOWN_SPEED: Speed = { pace: 0, interval: 0 }

/** delivery/README.md "From the table to the wire". */
const MOST_ROWS = 200
const AHEAD = 2 * SECOND
const IN_THREAD = 250
const ROWS_OF_A_CONNECTION = 3
/** Rows that wait for tokens of a rate: what goes in so long. */
const AHEAD_OF_RATE = 5 * SECOND
/** When nobody knows. */
const LOOK_AGAIN_AFTER = MINUTE
/** The pace is taken anew after so long, in milliseconds of real time. */
const COUNT_FOR = 250
/** Paths that had rows: many more than there are connections by default. The longest unused are forgotten. */
const MOST_REMEMBERED = 20_000
/** Of a path whose connections are all busy, before more is claimed: a claim of few rows costs the most for each. */
const LEAST_ROOM = 1 / 8
/** One in four is kept for transactional mail (delivery/README.md "Fairness"). */
const SHARE_OF_OTHERS = 0.75
const FEWEST_TO_SHARE = 4

export function createPaths<Row extends PathRow>(options: PathsOptions): Paths<Row> {
  const { clock, threads, gateOf, takeTokens } = options
  const paths = new Map<string, Path<Row>>()
  const changed = new Set<string>()
  const memories = recentEntries<string, Memory>(MOST_REMEMBERED)
  let nextThread = 0
  let nextAt = Infinity

  function memoryOf(facts: PathFacts): Memory {
    const known = memories.get(facts.key)
    if (known !== undefined) return known
    // In turns, so that a few busy paths share the threads evenly.
    const thread = nextThread++ % threads
    const memory = { facts, thread, ...UNKNOWN_SPEED, counted: 0, countedSince: performance.now() }
    memories.set(facts.key, memory)
    return memory
  }

  /** Without rows only its memory stays, as one that was used just now. */
  function endPath({ memory }: Path<Row>): void {
    const { key } = memory.facts
    paths.delete(key)
    // To ask for it makes it the latest, too.
    if (memories.get(key) === undefined) memories.set(key, memory)
  }

  /** Of one with rows, or one that may get some: to ask keeps nothing, for claims ask about more than they use. */
  const speedOf = (key: string, path: Path<Row> | undefined): Speed =>
    path?.memory ?? memories.peek(key) ?? UNKNOWN_SPEED

  function mostOf({ pace, interval }: Speed, gate: OpenGate): number {
    const { connections, messagesPerConnection, mostUnderWay } = gate
    const byPace = Math.max(4 * connections, pace * AHEAD)
    const byRate = rowsOfRate(interval)
    const most = Math.min(2 * connections * messagesPerConnection, MOST_ROWS, mostUnderWay, byPace, byRate)
    return Math.max(1, Math.floor(most))
  }

  function threadRoom(memory: Memory, gate: OpenGate): number {
    // One whose dot is out, one behind it, and one that is being rendered.
    const byPace = Math.max(ROWS_OF_A_CONNECTION * gate.connections, memory.pace * IN_THREAD)
    return Math.floor(Math.min(mostOf(memory, gate), byPace))
  }

  const loadOf = (path: Path<Row> | undefined): number =>
    path === undefined ? 0 : path.urgent.length + path.others.length + path.underWay

  /** How many more transactional rows fit beside those that are there: `all`, of these `others` that are not. */
  function urgentRoom(
    most: number,
    { mostUnderWay }: OpenGate,
    { all, others }: { all: number; others: number },
  ): number {
    const kept = Math.ceil(most * (1 - SHARE_OF_OTHERS)) - (all - others)
    return Math.max(0, Math.min(Math.max(most - all, kept), mostUnderWay - all))
  }

  /** Takes the path's rows apart: those that go now, and those that do not go soon. */
  function takeFrom(path: Path<Row>, taken: TakenRows<Row>): void {
    const { memory } = path
    const { facts } = memory
    const now = clock.now()
    takeExpired(path, now, taken)
    const gate = gateOf(facts)
    tell(path, gate, taken)
    if (path.urgent.length + path.others.length === 0) return
    if (gate.kind === 'closed') {
      const { waitingFor, text } = gate
      return wait(path, { until: gate.until ?? now + LOOK_AGAIN_AFTER, waitingFor, text }, 0, taken)
    }
    const { underWay, othersUnderWay } = path
    const inThread = threadRoom(memory, gate)
    const inAll = mostOf(memory, gate)
    const room = urgentRoom(inAll, gate, { all: underWay, others: othersUnderWay })
    const most = {
      urgent: Math.max(0, Math.min(path.urgent.length, inThread - underWay + othersUnderWay, room)),
      others: Math.max(0, Math.min(path.others.length, inThread - othersUnderWay, inAll - underWay)),
    }
    const wanted = Math.min(most.urgent + most.others, room)
    if (wanted === 0) return
    const tokens = takeTokens(facts, wanted)
    const rows = takeInTurns(path, tokens.granted, most)
    if (rows.length > 0) {
      for (const row of rows) row.isProbe ||= gate.mostUnderWay === 1
      path.underWay += rows.length
      path.othersUnderWay += rows.filter(({ isUrgent }) => !isUrgent).length
      path.told = { connections: gate.connections, messagesPerConnection: gate.messagesPerConnection }
      taken.ready.push({ thread: memory.thread, gate, rows })
    }
    if (tokens.nextAt === null) {
      if (wanted > 1) memory.interval = 0
      return
    }
    // The next token may be nearly there: only the longest wait shows how far apart they are.
    memory.interval = Math.max(memory.interval, tokens.nextAt - now)
    const text = `The rate to ${facts.isp} is used up.`
    wait(path, { until: tokens.nextAt, waitingFor: 'rate', text }, mostOf(memory, gate), taken)
  }

  /** So many in all, and at most so many of each kind. */
  function takeInTurns(path: Path<Row>, count: number, most: { urgent: number; others: number }): Row[] {
    let [urgent, others] = [0, 0]
    while (urgent + others < count) {
      if (path.turns.isUrgentNext(urgent < most.urgent, others < most.others)) urgent++
      else others++
    }
    return [...path.urgent.splice(0, urgent), ...path.others.splice(0, others)]
  }

  /** Rows beyond `kept` go back, unless the wait is short. */
  function wait(path: Path<Row>, closure: Closure & { until: number }, kept: number, taken: TakenRows<Row>): void {
    const isShort = closure.until - clock.now() <= SHORT_WAIT
    if (!isShort) {
      const rows = [...path.urgent, ...path.others]
      for (const row of rows.slice(kept)) taken.returned.push({ row, closure })
      const urgent = path.urgent.length
      path.urgent.length = Math.min(urgent, kept)
      path.others.length = Math.min(path.others.length, Math.max(0, kept - urgent))
    }
    if (path.urgent.length + path.others.length === 0) return
    nextAt = Math.min(nextAt, closure.until)
  }

  function takeExpired(path: Path<Row>, now: number, taken: TakenRows<Row>): void {
    if (now < path.endsFrom) return
    const isOver = ({ expiresAt }: Row): boolean => expiresAt <= now
    for (const rows of [path.urgent, path.others]) {
      if (!rows.some(isOver)) continue
      taken.expired.push(...rows.filter(isOver))
      rows.splice(0, rows.length, ...rows.filter((row) => !isOver(row)))
    }
    path.endsFrom = Math.min(...[...path.urgent, ...path.others].map(({ expiresAt }) => expiresAt))
  }

  /** Its thread learns of new limits while it has rows of the path. */
  function tell(path: Path<Row>, gate: Gate, taken: TakenRows<Row>): void {
    if (path.underWay === 0 || path.told === undefined) return
    if (gate.kind === 'closed' && gate.waitingFor !== 'suspension') return
    const { connections, messagesPerConnection } = gate.kind === 'open' ? gate : { ...path.told, connections: 0 }
    if (connections === path.told.connections && messagesPerConnection === path.told.messagesPerConnection) return
    path.told = { connections, messagesPerConnection }
    const { facts, thread } = path.memory
    taken.limits.push({ thread, pathKey: facts.key, connections, messagesPerConnection })
  }

  function count(memory: Memory): void {
    memory.counted++
    const now = performance.now()
    const elapsed = now - memory.countedSince
    if (elapsed < COUNT_FOR) return
    // After a rest the first count says nothing.
    memory.pace = elapsed < 4 * COUNT_FOR ? memory.counted / elapsed : 0
    memory.counted = 0
    memory.countedSince = now
  }

  return {
    add(row) {
      const { key } = row.facts
      const path = paths.get(key) ?? newPath(memoryOf(row.facts))
      paths.set(key, path)
      path.memory.facts = row.facts
      if (row.isUrgent) path.urgent.push(row)
      else path.others.push(row)
      path.endsFrom = Math.min(path.endsFrom, row.expiresAt)
      changed.add(key)
    },
    take() {
      const taken: TakenRows<Row> = { ready: [], expired: [], returned: [], limits: [] }
      if (clock.now() >= nextAt) for (const key of paths.keys()) changed.add(key)
      if (clock.now() >= nextAt) nextAt = Infinity
      for (const key of changed) {
        const path = paths.get(key)
        if (path === undefined) continue
        takeFrom(path, taken)
        // Whatever they wait for, they end in time.
        if (path.urgent.length + path.others.length > 0) nextAt = Math.min(nextAt, path.endsFrom)
        if (loadOf(path) === 0) endPath(path)
      }
      changed.clear()
      return taken
    },
    nextAt: () => (nextAt === Infinity ? null : nextAt),
    settle({ facts, isUrgent }) {
      const path = paths.get(facts.key)
      if (path === undefined) return
      path.underWay--
      if (!isUrgent) path.othersUnderWay--
      count(path.memory)
      changed.add(facts.key)
      if (loadOf(path) === 0) endPath(path)
    },
    touch: ({ key }) => void changed.add(key),
    touchAll() {
      for (const key of paths.keys()) changed.add(key)
    },
    roomOf(facts, gate, isUrgent) {
      const path = paths.get(facts.key)
      const most = mostOf(speedOf(facts.key, path), gate)
      const all = loadOf(path)
      const others = path === undefined ? 0 : path.others.length + path.othersUnderWay
      const share = most < FEWEST_TO_SHARE ? most : Math.floor(most * SHARE_OF_OTHERS)
      const forOthers = Math.max(0, Math.min(most - all, share - others))
      const room = isUrgent ? urgentRoom(most, gate, { all, others }) : forOthers
      const isBusy = path !== undefined && path.underWay >= gate.connections
      return isBusy && room < most * LEAST_ROOM ? 0 : room
    },
    hasRoom({ key }, gate) {
      const path = paths.get(key)
      // One without rows has room for the first.
      return path === undefined || loadOf(path) < Math.min(MOST_ROWS + mostOf(path.memory, gate), gate.mostUnderWay)
    },
    takesMore({ key }, chosenBefore) {
      const path = paths.get(key)
      return loadOf(path) + chosenBefore < Math.min(MOST_ROWS, rowsOfRate(speedOf(key, path).interval))
    },
    factsOf: (pathKey) => (paths.get(pathKey)?.memory ?? memories.peek(pathKey))?.facts,
    freeSlots: ({ key }, { connections }) => Math.max(0, connections - (paths.get(key)?.underWay ?? 0)),
    *held() {
      for (const { urgent, others } of paths.values()) {
        yield* urgent
        yield* others
      }
    },
    takeWaiting() {
      return [...paths.values()].flatMap((path) => [...path.urgent.splice(0), ...path.others.splice(0)])
    },
  }
}

/** Rows that may wait for their tokens. */
function rowsOfRate(interval: number): number {
  return interval === 0 ? Infinity : Math.max(1, Math.floor(AHEAD_OF_RATE / interval))
}

function newPath<Row>(memory: Memory): Path<Row> {
  return {
    memory,
    urgent: [],
    others: [],
    endsFrom: Infinity,
    turns: createStreamTurns(),
    underWay: 0,
    othersUnderWay: 0,
    told: undefined,
  }
}
