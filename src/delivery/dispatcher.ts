/**
 * Takes due messages from the store, brings each to the delivery thread of its path, and records what became of it.
 *
 *   directory (which keys are due) -> claim round (what can go) -> claim (lease) -> place (route, IP, allowance)
 *   -> wait for room in the path -> thread;  result -> judge -> record, or back to the queue without an attempt
 *
 * Here the two halves (`claiming.ts`, `sending.ts`) are joined, started and stopped. Events start all work. Should an
 * event be missed, a walk over the store's keys finds the work; should a claimed row be lost, `orphans.ts` finds the
 * row. Every claimed row ends recorded or given back; if the process dies first, its lease is left to the next one.
 * Errors of the store are logged and tried again.
 */
import { SECOND, type Clock } from '../base/clock.ts'
import { within } from '../base/within.ts'
import type { QueuedRows } from '../store/records/queue-records.ts'
import { createQueueFigures, createWhyWaiting } from './claim/why-waiting.ts'
import { createClaiming, type Claiming } from './claiming.ts'
import {
  createDispatcherParts,
  createRowEvents,
  type DispatcherOptions,
  type DispatcherParts,
  type WakeUps,
} from './dispatcher-parts.ts'
import { LONGEST_STOP } from './delivery-threads.ts'
import { createHolders, createWhereIs } from './holders.ts'
import { createLeaseRenewal, createOrphans, type LeaseRenewal, type Orphans } from './orphans.ts'
import { createSending, type Sending } from './sending.ts'

export type Dispatcher = ReturnType<typeof createDispatcher>

export function createDispatcher(options: DispatcherOptions) {
  const parts = createDispatcherParts(options)
  const { clock, directory, window } = parts
  const state = { isStopping: false, isBroken: false }
  const stopping = Promise.withResolvers<void>()
  /** Nothing is woken before `start`: until then all of these parts are there. */
  const wake: WakeUps = {
    claims: () => claiming.loop.wake(),
    paths: () => sending.pump.schedule(),
    walk: () => claiming.walk.walkSoon(),
    domains: { note: (names, dueAt) => claiming.domains.note(names, dueAt), wake: () => claiming.domains.wake() },
  }
  const maySend = (): boolean => !state.isStopping && !state.isBroken
  const events = createRowEvents(parts, wake)
  const sending: Sending = createSending(parts, {
    events,
    wake,
    maySend,
    onUnblocked: resume,
    onFatal(reason) {
      // No thread is left to send anything.
      state.isBroken = true
      options.onFatal(reason)
    },
  })
  const { recorder, marks, threads } = sending
  const claiming: Claiming = createClaiming(parts, sending, {
    events,
    wake,
    mayClaim: () => maySend() && !recorder.isBlocked() && !marks.isBlocked() && (options.mayDeliver?.() ?? true),
    isStopping: () => state.isStopping,
    stopping: stopping.promise,
  })
  const holders = createHolders({ ...parts, ...sending, placer: claiming.placer })
  const orphans = createOrphans({ ...parts, ...sending, holders, onFreed: wake.walk })
  const leases = createLeaseRenewal({ ...parts, holders, orphans })

  function resume(): void {
    claiming.lookAgain.everything()
    wake.domains.wake()
  }

  return {
    ...createQueueFigures(parts),
    /** What keeps a waiting message back; undefined: nothing known here. */
    whyWaiting: createWhyWaiting({ ...parts, isFull: () => window.room() === 0 }),
    holders,
    /** Where a claimed message is; undefined: in nobody's hand. Never rejects. */
    whereIs: createWhereIs({ clock, holders, threads }),
    /** These rows came into the queue, or are due at another time. */
    noteQueued({ keys, unroutedDomains }: QueuedRows): void {
      directory.note(keys)
      // Also of mail for a later time: it stands under the key of its provider when that comes.
      if (unroutedDomains.length > 0) wake.domains.note(unroutedDomains, clock.now())
      wake.claims()
    },
    resume,
    /** The queue changed, and nobody knows where: its keys are read again. */
    wake(): void {
      wake.walk()
      wake.claims()
    },
    othersWrote: () => claiming.walk.othersWrote(),
    /** Of all rows that are held here. */
    renewLeases: () => leases.renew(),
    start: () => startAll(parts, { ...sending, ...claiming, leases }, resume),
    /** Claims nothing more, lets what runs finish as `DeliveryThreads.drain` does, and records all of it. */
    stop(...times: StopTimes): Promise<void> {
      state.isStopping = true
      stopping.resolve()
      return stopAll({ ...sending, ...claiming, leases, orphans }, options.realClock, ...times)
    },
    /** Resolves when every delivery thread answers. */
    ticks: () => threads.tick(),
  }
}

type AllParts = Sending & Claiming & { leases: LeaseRenewal; orphans: Orphans }

async function startAll(
  { egress, epoch, live, pathFacts, routes, shaping }: DispatcherParts,
  { recorder, threads, pump, domains, leases, lookAgain, loop, walk }: Omit<AllParts, 'orphans'>,
  resume: () => void,
): Promise<void> {
  /** IPs or limits have changed: rows that have not gone to a thread are placed anew, and those their IP lost. */
  function placeAnew(): void {
    pathFacts.forget()
    pump.giveBackWaiting()
    pump.recall(egress.ips())
    resume()
  }

  recorder.begin(epoch)
  egress.onChange(placeAnew)
  shaping.onOpen(lookAgain.pathsOpened)
  live.onChange(() => {
    routes.forget()
    placeAnew()
  })
  threads.start()
  leases.start()
  loop.start()
  domains.start()
  await Promise.all([walk.start(), threads.tick()])
}

/** A stop waits no longer for the answer to a claim: its rows are left to their leases, as by a kill. */
const LONGEST_CLAIM = 10 * SECOND
/** To store what a drain left that took its longest time: both fit into `TimeoutStopSec` (systemd/README.md "The unit"). */
const LEAST_FINISH = 5 * SECOND

/** Milliseconds of the drain, and the longest in all. */
type StopTimes = [drain: number, longest?: number]

async function stopAll(
  { recorder, marks, tries, threads, pump, domains, placer, loop, walk, lookAgain, leases, orphans }: AllParts,
  realClock: Clock,
  ...[drain, longest = LONGEST_STOP]: StopTimes
): Promise<void> {
  const startedAt = realClock.now()
  lookAgain.stop()
  orphans.stop()
  const routed = domains.stop()
  // What a claim brings now is given back.
  const claimed = within(Promise.all([loop.stop(), walk.stop()]), LONGEST_CLAIM, realClock)
  pump.giveBackWaiting()
  // What a lookup still holds then is left to its lease.
  const lookedUp = Promise.all([routed, placer.settled()])
  await Promise.all([claimed, within(lookedUp, drain), threads.drain(drain, longest)])
  pump.giveBackWaiting()
  tries.endUnanswered()
  marks.stop()
  const left = longest - (realClock.now() - startedAt)
  await Promise.all([recorder.finish(Math.max(left, 0) + LEAST_FINISH), threads.end()])
  leases.stop()
  pump.stop()
}
