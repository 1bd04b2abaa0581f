/**
 * The time of a simulated world: a queue of what happens next, and in place of the timers, clocks and random sources of
 * this process such as follow that queue and a seed.
 *
 * A world runs inside one synchronous call: each event is run, then everything that its promises lead to, then the next
 * one. Nothing of the real world comes between, so that one seed is one run, to the byte. Every event belongs to an
 * owner (a thread of a simulated process); what belongs to a dead one does not happen any more, as after a kill.
 */
import crypto from 'node:crypto'
import { syncBuiltinESMExports } from 'node:module'
import type { RandomSource } from '../support/random-source.ts'

/** A thread, or the process that its parent is. */
export interface Owner {
  name: string
  parent: Owner | null
  isDead: boolean
  /** Its immediates happen in their order. */
  nextImmediateAt: number
  /** It works until then: what comes sooner waits. */
  busyUntil: number
  /** Each of its events takes up to so many milliseconds. */
  turnTime: number
}

interface PlannedEvent {
  at: number
  order: number
  owner: Owner
  run: () => void
  isCanceled: boolean
}

export interface VirtualTime {
  /** Milliseconds since the world began; nobody can set it. */
  now(): number
  wall(): number
  /** Sets the wall clock ahead, or back. */
  jump(milliseconds: number): void
  owner(name: string, options?: { parent?: Owner; turnTime?: number }): Owner
  /** The thread whose event this is works for so long; other threads go on meanwhile. */
  spend(milliseconds: number): void
  /** The returned function cancels. */
  plan(delayMilliseconds: number, owner: Owner, run: () => void): () => void
  /** Until nothing is planned, `isOver` says so, or that time has come; the last is false. */
  runUntil(endsAt: number, isOver: () => boolean): boolean
  /** So many events have happened. */
  events(): number
  /** How often random bytes were asked for. */
  draws(): number
  /** Replaces what the code under test reads from the process; returns what puts it back. */
  install(): () => void
}

/** The world begins at this time of its wall clock. */
export const BEGINS_AT = Date.UTC(2026, 10, 2, 9)
/** Turns of an event loop take up to so long, in milliseconds: threads overtake each other. */
const LONGEST_TURN = 0.3

export function createVirtualTime(random: RandomSource): VirtualTime {
  const queue: PlannedEvent[] = []
  const outside: Owner = { name: 'world', parent: null, isDead: false, nextImmediateAt: 0, busyUntil: 0, turnTime: 0 }
  let current = outside
  let time = 0
  /** In this event. */
  let spent = 0
  let ahead = BEGINS_AT
  let order = 0
  let events = 0
  let draws = 0

  const now = (): number => time + spent
  const wall = (): number => Math.floor(now()) + ahead

  function plan(delay: number, owner: Owner, run: () => void): PlannedEvent {
    const event = { at: now() + delay, order: order++, owner, run, isCanceled: false }
    push(queue, event)
    return event
  }

  function planImmediate(run: () => void): PlannedEvent {
    const at = Math.max(now() + random.next() * LONGEST_TURN, current.nextImmediateAt)
    current.nextImmediateAt = at
    return plan(at - now(), current, run)
  }

  function runUntil(endsAt: number, isOver: () => boolean): boolean {
    for (let next = queue[0]; next !== undefined && !isOver(); next = queue[0]) {
      if (next.at > endsAt) return false
      pop(queue)
      time = Math.max(time, next.at)
      const { owner } = next
      if (next.isCanceled || isDead(owner)) continue
      if (owner.busyUntil > time) {
        next.at = owner.busyUntil
        push(queue, next)
        continue
      }
      current = owner
      events++
      if (owner.turnTime > 0) spent = random.next() * owner.turnTime
      next.run()
      drainPromises()
      owner.busyUntil = now()
      spent = 0
      current = outside
    }
    return true
  }

  function install(): () => void {
    const cancel = (event: unknown): void => {
      if (typeof event === 'object' && event !== null && 'isCanceled' in event) event.isCanceled = true
    }
    const timer = (run: (...values: unknown[]) => void, delay = 1, ...values: unknown[]): PlannedEvent =>
      withTimerMethods(plan(Math.max(1, delay), current, () => run(...values)))
    const fill = (bytes: Uint8Array): Uint8Array => {
      draws++
      for (let index = 0; index < bytes.length; index++) bytes[index] = random.integer(256)
      return bytes
    }
    return replaceAll([
      [globalThis, 'setTimeout', timer],
      [globalThis, 'clearTimeout', cancel],
      [globalThis, 'setImmediate', (run: () => void) => withTimerMethods(planImmediate(run))],
      [globalThis, 'clearImmediate', cancel],
      [Date, 'now', wall],
      [performance, 'now', now],
      [Math, 'random', random.next],
      [crypto, 'randomFillSync', fill],
      [crypto, 'randomBytes', (length: number) => fill(Buffer.alloc(length))],
    ])
  }

  return {
    now,
    wall,
    runUntil,
    install,
    events: () => events,
    draws: () => draws,
    spend(milliseconds) {
      spent += milliseconds
    },
    jump(milliseconds) {
      ahead += milliseconds
    },
    owner: (name, { parent, turnTime } = {}) => ({
      name,
      parent: parent ?? null,
      isDead: false,
      nextImmediateAt: 0,
      busyUntil: 0,
      turnTime: turnTime ?? 0,
    }),
    plan(delay, owner, run) {
      const event = plan(delay, owner, run)
      return () => {
        event.isCanceled = true
      }
    },
  }
}

export function isDead(owner: Owner): boolean {
  return owner.isDead || (owner.parent !== null && isDead(owner.parent))
}

/** Runs all that settled promises lead to. The process does the same at the end of each of its turns. */
function drainPromises(): void {
  const { _tickCallback: drain } = process as unknown as { _tickCallback: () => void }
  drain()
}

function withTimerMethods(event: PlannedEvent): PlannedEvent {
  return Object.assign(event, { ref: () => event, unref: () => event, hasRef: () => true })
}

type Replacement = readonly [holder: object, name: string, value: unknown]

function replaceAll(replacements: readonly Replacement[]): () => void {
  const before = replacements.map(([holder, name]) => Object.getOwnPropertyDescriptor(holder, name))
  for (const [holder, name, value] of replacements) {
    Object.defineProperty(holder, name, { value, configurable: true, writable: true, enumerable: true })
  }
  syncBuiltinESMExports()
  return () => {
    replacements.forEach(([holder, name], index) => {
      const former = before[index]
      if (former === undefined) Reflect.deleteProperty(holder, name)
      else Object.defineProperty(holder, name, former)
    })
    syncBuiltinESMExports()
  }
}

function isBefore(one: PlannedEvent, other: PlannedEvent): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order)
}

function push(heap: PlannedEvent[], event: PlannedEvent): void {
  let index = heap.push(event) - 1
  while (index > 0) {
    const above = (index - 1) >> 1
    const parent = heap[above]
    if (parent === undefined || !isBefore(event, parent)) break
    heap[index] = parent
    index = above
  }
  heap[index] = event
}

function pop(heap: PlannedEvent[]): void {
  const last = heap.pop()
  if (last === undefined || heap.length === 0) return
  let index = 0
  for (;;) {
    let below = 2 * index + 1
    const [left, right] = [heap[below], heap[below + 1]]
    if (left === undefined) break
    if (right !== undefined && isBefore(right, left)) below++
    const child = heap[below]
    if (child === undefined || !isBefore(child, last)) break
    heap[index] = child
    index = below
  }
  heap[index] = last
}
