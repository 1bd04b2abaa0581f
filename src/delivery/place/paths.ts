/**
 * The paths (egress IP, route) as the dispatcher sees them. For each path: claimed rows that wait for it, rows of it
 * that are in a thread, and how many more it may take (`path-speed.ts`). A path belongs to one thread, so that its
 * connections can be used again. Nothing here waits or throws. delivery/README.md "From the table to the wire".
 */
import type { OpenGate } from '../../egress/shaping/shaping.ts'
import { createStreamTurns } from '../protocol/stream-turns.ts'
import type { PathFacts } from './path-facts.ts'
import {
  countRow,
  createPathMemories,
  MOST_ROWS,
  mostOf,
  roomToClaim,
  rowsOfRate,
  type PathMemory,
} from './path-speed.ts'
import { createTakeRows, waitingIn, type Path, type PathRow, type TakenRows } from './take-rows.ts'

export type PathRoom = ReturnType<typeof createPathRoom>

export type Paths<Row extends PathRow> = ReturnType<typeof createPaths<Row>>

type PathsOptions = Parameters<typeof createTakeRows>[0] & { threads: number }

export function createPaths<Row extends PathRow>(options: PathsOptions) {
  const { clock } = options
  const takeRows = createTakeRows<Row>(options)
  const memories = createPathMemories(options.threads)
  const paths = new Map<string, Path<Row>>()
  const changed = new Set<string>()
  let nextAt = Infinity

  /** Without rows only its memory stays. */
  function endWithoutRows(path: Path<Row>): void {
    if (loadOf(path) > 0) return
    paths.delete(path.memory.facts.key)
    memories.keep(path.memory)
  }

  return {
    ...createPathRoom(paths, memories),
    ...createPathProofs((key) => paths.get(key)?.memory ?? memories.find(key)),
    add(row: Row): void {
      const { key } = row.facts
      const path = paths.get(key) ?? newPath(memories.of(row.facts))
      paths.set(key, path)
      path.memory.facts = row.facts
      if (row.isUrgent) path.urgent.push(row)
      else path.others.push(row)
      path.endsFrom = Math.min(path.endsFrom, row.expiresAt)
      changed.add(key)
    },
    /** What to do with the rows of paths that changed. */
    take(): TakenRows<Row> {
      const taken: TakenRows<Row> = { ready: [], expired: [], returned: [], limits: [] }
      if (clock.now() >= nextAt) {
        for (const key of paths.keys()) changed.add(key)
        nextAt = Infinity
      }
      for (const key of changed) {
        const path = paths.get(key)
        if (path === undefined) continue
        nextAt = Math.min(nextAt, takeRows(path, taken))
        endWithoutRows(path)
      }
      changed.clear()
      return taken
    },
    /** When rows that wait can go by time alone; null: only an event can tell. */
    nextAt: () => (nextAt === Infinity ? null : nextAt),
    /** A row has come back from its thread. */
    settle({ facts, isUrgent }: Row): void {
      const path = paths.get(facts.key)
      if (path === undefined) return
      path.underWay--
      if (!isUrgent) path.othersUnderWay--
      countRow(path.memory)
      changed.add(facts.key)
      endWithoutRows(path)
    },
    touch: ({ key }: PathFacts) => void changed.add(key),
    touchAll(): void {
      for (const key of paths.keys()) changed.add(key)
    },
    /** Undefined: it had no rows lately. Connections that rest still tell of their path. */
    factsOf: (pathKey: string) => (paths.get(pathKey)?.memory ?? memories.find(pathKey))?.facts,
    *held(): Iterable<Row> {
      for (const { urgent, others } of paths.values()) {
        yield* urgent
        yield* others
      }
    },
    /** Everything that has not gone to a thread. */
    takeWaiting(): Row[] {
      return [...paths.values()].flatMap((path) => [...path.urgent.splice(0), ...path.others.splice(0)])
    },
  }
}

/** What connections tell of their path. */
function createPathProofs(memoryOf: (pathKey: string) => PathMemory | undefined) {
  return {
    /** One that came about may have so many messages under way. True: it is the first. */
    noteOpened({ key }: PathFacts, inFlight: number): boolean {
      const memory = memoryOf(key)
      if (memory === undefined) return false
      const { isProven } = memory
      memory.inFlight = inFlight
      memory.isProven = true
      return !isProven
    },
  }
}

function createPathRoom(paths: ReadonlyMap<string, Path<unknown>>, memories: ReturnType<typeof createPathMemories>) {
  return {
    /** How many more rows may be claimed for it, of a gate that is open. */
    roomOf(facts: PathFacts, gate: OpenGate, isUrgent: boolean): number {
      const path = paths.get(facts.key)
      if (path === undefined) return roomToClaim(memories.speedOf(facts), gate, NO_LOAD, isUrgent)
      const { others, underWay, othersUnderWay } = path
      const load = { all: loadOf(path), others: others.length + othersUnderWay, underWay }
      return roomToClaim(path.memory, gate, load, isUrgent)
    },
    /** It takes a row that is claimed already. A path may have some more rows than it is claimed for. */
    hasRoom({ key }: PathFacts, gate: OpenGate): boolean {
      const path = paths.get(key)
      // One without rows has room for the first.
      return path === undefined || loadOf(path) < Math.min(MOST_ROWS + mostOf(path.memory, gate), gate.mostUnderWay)
    },
    /** While its rate lets nothing through: whether the row could still go within a few seconds. */
    takesMore(facts: PathFacts, chosenBefore: number): boolean {
      const path = paths.get(facts.key)
      const { interval } = path?.memory ?? memories.speedOf(facts)
      return loadOf(path) + chosenBefore < Math.min(MOST_ROWS, rowsOfRate(interval))
    },
    /** Connections that nothing is under way for. */
    freeSlots: ({ key }: PathFacts, { connections }: OpenGate) =>
      Math.max(0, connections - (paths.get(key)?.underWay ?? 0)),
  }
}

const NO_LOAD = { all: 0, others: 0, underWay: 0 }

function loadOf(path: Path<unknown> | undefined): number {
  return path === undefined ? 0 : waitingIn(path) + path.underWay
}

function newPath<Row>(memory: PathMemory): Path<Row> {
  const nothing = { urgent: [], others: [], underWay: 0, othersUnderWay: 0 }
  return { memory, ...nothing, endsFrom: Infinity, turns: createStreamTurns(), told: undefined }
}
