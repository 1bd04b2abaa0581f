/**
 * How many connections a path may have, learnt from what happens to them: additive increase, multiplicative decrease
 * (egress/README.md "Concurrency"). Pure; times are Unix milliseconds.
 */
import { MINUTE, SECOND } from '../../base/clock.ts'

export interface Concurrency {
  /** A fraction; `floor` of it may be open. */
  c: number
  halvedAt: number
  usedAt: number
  /** When each open connection was opened, oldest first. */
  openedAt: number[]
  /** The last time at which all that are allowed were open. */
  fullAt: number
}

const START = 2
/** For an IP that is new to the world. */
const START_OF_NEW_IP = 1
const HALVED_AT_MOST_EVERY = 10 * SECOND
const IDLE_AFTER = 10 * MINUTE
const MOST_AFTER_IDLE = 2
/**
 * Longer than any connection lives (delivery/README.md "The SMTP session"): one whose end was never told is gone by
 * then.
 */
const LONGEST_CONNECTION = 30 * MINUTE

/** What a path begins with. */
export function startConnections(isNewIp: boolean): number {
  return isNewIp ? START_OF_NEW_IP : START
}

export function newConcurrency(isNewIp: boolean, now: number): Concurrency {
  return { c: startConnections(isNewIp), halvedAt: 0, usedAt: now, openedAt: [], fullAt: 0 }
}

export function isAsNew({ c, openedAt }: Concurrency): boolean {
  return c === START && openedAt.length === 0
}

/** Of a path that was idle for long: beyond 2 all is lost; `isOld`: below 2 says nothing more either. */
export function forgetConcurrency(state: Concurrency, now: number, isOld: boolean): void {
  state.c = isOld ? START : Math.min(state.c, MOST_AFTER_IDLE)
  openConnections(state, now)
}

/** Connections that may be open, before any other limit. */
export function usableConnections({ c, usedAt }: Concurrency, now: number): number {
  return Math.max(1, Math.floor(now - usedAt >= IDLE_AFTER ? Math.min(c, MOST_AFTER_IDLE) : c))
}

export function noteTraffic(state: Concurrency, now: number): void {
  state.c = now - state.usedAt >= IDLE_AFTER ? Math.min(state.c, MOST_AFTER_IDLE) : state.c
  state.usedAt = now
}

/** `limit`: the smallest of all other limits. */
export function noteOpened(state: Concurrency, now: number, limit: number): void {
  noteTraffic(state, now)
  state.openedAt.push(now)
  if (state.openedAt.length >= Math.min(Math.floor(state.c), limit)) state.fullAt = now
}

/** While all connections are in use, a path learns from each message: those of one connection may be many. */
export function noteDelivered(state: Concurrency, limit: number): void {
  const allowed = Math.floor(state.c)
  if (state.c < limit && state.openedAt.length >= allowed) state.c = Math.min(limit, state.c + 1 / allowed)
}

/** The oldest is taken for the one that ended: they live about equally long. */
export function noteEndedWell(state: Concurrency, now: number, limit: number, delivered: number): void {
  const openedAt = noteEnded(state, now)
  const wasAllInUse = openedAt !== undefined && state.fullAt >= openedAt
  if (delivered === 0 || !wasAllInUse || state.c >= limit) return
  state.c = Math.min(limit, state.c + 1 / Math.floor(state.c))
}

/** Returns when it was opened, if that is known. */
export function noteEnded(state: Concurrency, now: number): number | undefined {
  noteTraffic(state, now)
  if (state.openedAt.length >= Math.floor(state.c)) state.fullAt = now
  return state.openedAt.shift()
}

export function halve(state: Concurrency, now: number): void {
  if (now - state.halvedAt < HALVED_AT_MOST_EVERY && now >= state.halvedAt) return
  state.c = Math.max(1, state.c / 2)
  state.halvedAt = now
}

/** Connections that are open, as far as it was told. */
export function openConnections(state: Concurrency, now: number): number {
  while ((state.openedAt[0] ?? now) < now - LONGEST_CONNECTION) state.openedAt.shift()
  return state.openedAt.length
}
