/**
 * Takes the claimed rows of one path apart: those that go to its thread now, those that cannot go soon, and those whose
 * lifetime is over. The rest waits on, with the time when it can go. Nothing here waits or throws. delivery/README.md
 * "From the table to the wire" and "Fairness", egress/README.md "Rates".
 */
import { isDeepStrictEqual } from 'node:util'
import { MINUTE, type Clock } from '../../base/clock.ts'
import { SHORT_WAIT, type Gate, type OpenGate, type Tokens } from '../../egress/shaping/shaping.ts'
import type { WaitingFor } from '../../store/records/queue-records.ts'
import type { StreamTurns } from '../protocol/stream-turns.ts'
import type { PathLimits } from '../protocol/try-result.ts'
import type { PathFacts } from './path-facts.ts'
import { mostInThread, mostOf, urgentRoom, type PathMemory } from './path-speed.ts'

/** Why nothing of a queue key can be claimed now, or nothing of a path be sent. */
export interface Closure {
  /** Null: an event will tell. */
  until: number | null
  waitingFor: WaitingFor
  text: string
}

type TimedClosure = Closure & { until: number }

/** Of a path whose connections are all in use. */
export function allBusy(isp: string): Pick<Closure, 'waitingFor' | 'text'> {
  return { waitingFor: 'connections', text: `All connections to ${isp} are in use.` }
}

/** Of a path, or of a sending domain on it, that was suspended. */
export function triedOut(isp: string): Pick<Closure, 'waitingFor' | 'text'> {
  const text = `Mail to ${isp} was suspended and is being tried out again, one message at a time.`
  return { waitingFor: 'suspension', text }
}

export interface PathRow {
  claim: number
  facts: PathFacts
  /** Transactional: it goes before all that are not. */
  isUrgent: boolean
  expiresAt: number
  /** A suspended path or sending domain is tried out with it (egress/README.md "Suspension ladder"). */
  isProbe: boolean
}

export interface TakenRows<Row> {
  /** To their threads, now; `gate`: the path's, as it was when they were taken. */
  ready: { thread: number; gate: OpenGate; rows: Row[] }[]
  expired: Row[]
  /** They cannot go soon. */
  returned: { row: Row; closure: TimedClosure }[]
  /** Threads that have rows of a path whose limits have changed. 0 connections: it is suspended. */
  limits: (PathLimits & { thread: number; pathKey: string })[]
}

export interface Path<Row> {
  memory: PathMemory
  urgent: Row[]
  others: Row[]
  /** No waiting row ends sooner. */
  endsFrom: number
  turns: StreamTurns
  underWay: number
  /** Of these, those that are not urgent. */
  othersUnderWay: number
  told: PathLimits | undefined
}

interface TakeRowsOptions {
  clock: Clock
  gateOf: (facts: PathFacts) => Gate
  takeTokens: (facts: PathFacts, count: number) => Tokens
}

const LOOK_AGAIN_AFTER = MINUTE

export function createTakeRows<Row extends PathRow>({ clock, gateOf, takeTokens }: TakeRowsOptions) {
  /** Those that go now, in so far as gate, pace and rate let them. */
  function takeReady(path: Path<Row>, gate: OpenGate, taken: TakenRows<Row>): number {
    const { memory, underWay, othersUnderWay } = path
    const inThread = mostInThread(memory, gate)
    const inAll = mostOf(memory, gate)
    const room = urgentRoom(inAll, gate, { all: underWay, others: othersUnderWay })
    const most = {
      urgent: Math.max(0, Math.min(path.urgent.length, inThread - underWay + othersUnderWay, room)),
      others: Math.max(0, Math.min(path.others.length, inThread - othersUnderWay, inAll - underWay)),
    }
    const wanted = Math.min(most.urgent + most.others, room)
    if (wanted === 0) return Infinity
    const tokens = takeTokens(memory.facts, wanted)
    const rows = takeInTurns(path, tokens.granted, most)
    if (rows.length > 0) {
      for (const row of rows) row.isProbe ||= gate.mostUnderWay === 1
      path.underWay += rows.length
      path.othersUnderWay += rows.filter(({ isUrgent }) => !isUrgent).length
      path.told = limitsOf(gate)
      taken.ready.push({ thread: memory.thread, gate, rows })
    }
    if (tokens.nextAt === null) {
      if (wanted > 1) memory.interval = 0
      return Infinity
    }
    const now = clock.now()
    // The next token may be nearly there: only the longest wait shows how far apart tokens are.
    memory.interval = Math.max(memory.interval, tokens.nextAt - now)
    const text = `The rate to ${memory.facts.isp} is used up.`
    const closure = { until: tokens.nextAt, waitingFor: 'rate' as const, text }
    if (tokens.nextAt - now > SHORT_WAIT) returnBeyond(path, mostOf(memory, gate), closure, taken)
    return waitingIn(path) > 0 ? tokens.nextAt : Infinity
  }

  /** Adds to `taken` what leaves the path; returns when what stays can go by time alone, Infinity: nothing can. */
  return (path: Path<Row>, taken: TakenRows<Row>): number => {
    const now = clock.now()
    takeExpired(path, now, taken)
    const gate = gateOf(path.memory.facts)
    tellThread(path, gate, taken)
    if (waitingIn(path) === 0) return Infinity
    if (gate.kind === 'open')
      return Math.min(takeReady(path, gate, taken), waitingIn(path) > 0 ? path.endsFrom : Infinity)
    const { waitingFor, text } = gate
    const closure = { until: gate.until ?? now + LOOK_AGAIN_AFTER, waitingFor, text }
    if (closure.until - now > SHORT_WAIT) returnBeyond(path, 0, closure, taken)
    // Whatever they wait for, they end in time.
    return waitingIn(path) > 0 ? Math.min(closure.until, path.endsFrom) : Infinity
  }
}

export function waitingIn({ urgent, others }: Path<unknown>): number {
  return urgent.length + others.length
}

/** So many in all, and at most so many of each kind. */
function takeInTurns<Row>(path: Path<Row>, count: number, most: { urgent: number; others: number }): Row[] {
  let [urgent, others] = [0, 0]
  while (urgent + others < count) {
    if (path.turns.isUrgentNext(urgent < most.urgent, others < most.others)) urgent++
    else others++
  }
  return [...path.urgent.splice(0, urgent), ...path.others.splice(0, others)]
}

function returnBeyond<Row>(path: Path<Row>, kept: number, closure: TimedClosure, taken: TakenRows<Row>): void {
  const urgent = path.urgent.length
  const returned = [...path.urgent.splice(kept), ...path.others.splice(Math.max(0, kept - urgent))]
  for (const row of returned) taken.returned.push({ row, closure })
}

function takeExpired<Row extends PathRow>(path: Path<Row>, now: number, taken: TakenRows<Row>): void {
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
function tellThread(path: Path<unknown>, gate: Gate, taken: TakenRows<unknown>): void {
  if (path.underWay === 0 || path.told === undefined) return
  if (gate.kind === 'closed' && gate.waitingFor !== 'suspension') return
  const next = gate.kind === 'open' ? limitsOf(gate) : { ...path.told, connections: 0 }
  if (isDeepStrictEqual(next, path.told)) return
  path.told = next
  const { facts, thread } = path.memory
  taken.limits.push({ thread, pathKey: facts.key, ...next })
}

function limitsOf({ connections, messagesPerConnection, carefulHosts }: OpenGate): PathLimits {
  return { connections, messagesPerConnection, carefulHosts }
}
