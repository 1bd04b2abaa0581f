/**
 * The interface's verbs over those of the store's thread. Nearly all are handed on as they are; here stand those that
 * take several calls.
 *
 * Verbs over the whole queue go in parts that each hold the store for some milliseconds, with whatever others have
 * called meanwhile between them. Each part is one transaction; a failure leaves what was done before it, and a repeated
 * call goes on from there.
 */
import { pagesOf } from '../../base/pages.ts'
import type { ThreadChannel } from '../../base/threads/thread-channel.ts'
import type { QueueGroup } from '../../mail/waiting-mail.ts'
import type { PackedRequest } from '../records/accept-records.ts'
import { memoryOfContent, packContent } from '../records/packed-content.ts'
import type { QueuedRows, QueueKey, RouteAssignment } from '../records/queue-records.ts'
import type { Store } from '../store.ts'
import { mergeQueued } from '../verbs/queue/queue-names.ts'
import { addGroup, type WalkPosition } from '../verbs/queue/waiting-rows.ts'
import type { Verbs } from '../verbs/verbs.ts'

type Ask = ThreadChannel['call']

type HandedOn = { [Name in keyof Verbs]: (...input: Parameters<Verbs[Name]>) => Promise<ReturnType<Verbs[Name]>> }
type Call = <Name extends keyof Verbs>(
  verb: Name,
  ...input: Parameters<Verbs[Name]>
) => Promise<ReturnType<Verbs[Name]>>

/** Messages that one transaction cancels at most. */
const CANCELED_AT_ONCE = 500
/** Rows about a domain that one transaction removes of each table. */
const REPORTS_AT_ONCE = 500

/** The verbs of a store whose thread is asked by `ask`; `verbs`: their names, which the thread has told. */
export function createStoreCalls(
  ask: Ask,
  verbs: readonly string[],
): Omit<Store, 'close' | 'problem' | 'refusal' | 'commitTime'> {
  const call: Call = (verb, ...input) => ask(verb, input) as Promise<ReturnType<Verbs[typeof verb]>>
  const handedOn = Object.fromEntries(verbs.map((verb) => [verb, (...input: unknown[]) => ask(verb, input)]))
  return {
    ...(handedOn as HandedOn),
    ...createQueueParts(call),
    ...createCountedCalls(call),
    /** The content moves to the store thread. */
    acceptMessages(request) {
      const content = packContent(request.content)
      const packed: PackedRequest = { ...request, content }
      return ask('acceptMessages', [packed], memoryOfContent(content)) as ReturnType<Store['acceptMessages']>
    },
    async removeDomain(request) {
      // Before the domain: what is left undone is there for the next call.
      if (request.purge) while ((await call('forgetReportsOfDomain', request.name, REPORTS_AT_ONCE)) > 0);
      const removed = await call('removeDomain', request)
      if (removed === null || !request.purge) return removed
      let canceled: number
      do {
        canceled = await call('cancelPurged', request.now, CANCELED_AT_ONCE)
      } while (canceled === CANCELED_AT_ONCE)
      return removed
    },
  }
}

function createQueueParts(call: Call) {
  return {
    async assignRoutes(assignments) {
      const parts: QueuedRows[] = []
      let rest: RouteAssignment[] = assignments
      while (rest.length > 0) {
        const part = await call('assignSomeRoutes', rest)
        parts.push(part.queued)
        rest = part.rest
      }
      return mergeQueued(parts).keys
    },

    async moveOrphans(known, target) {
      const moved = new Map<string, number>()
      let isDone = false
      while (!isDone) {
        const part = await call('moveSomeOrphans', known, target)
        for (const { pool, messages } of part.moved) moved.set(pool, (moved.get(pool) ?? 0) + messages)
        isDone = part.isDone
      }
      return [...moved].map(([pool, messages]) => ({ pool, messages }))
    },

    async queueGroups(by, filter, now) {
      const groups = new Map<string | null, QueueGroup>()
      const steps = pagesOf((after: WalkPosition | null) => call('someQueueGroups', { by, filter, now, after }))
      for await (const step of steps) for (const group of step.groups) addGroup(groups, group)
      return [...groups.values()].toSorted((left, right) => right.waiting - left.waiting)
    },

    async actOnQueue({ limit, ...request }) {
      const parts: QueuedRows[] = []
      let messages = 0
      const steps = pagesOf((after: WalkPosition | null) =>
        call('actOnSomeOfQueue', { ...request, limit: limit - messages, after }),
      )
      for await (const step of steps) {
        parts.push(step.queued)
        messages += step.messages
        if (!request.isDryRun && messages >= limit) break
      }
      return { messages, queued: mergeQueued(parts) }
    },

    async queueSummary(now) {
      const [waiting, sending, oldest] = await Promise.all([countWaiting(call), call('countSending'), findOldest(call)])
      return { waiting, sending, oldestDueAt: oldest > now ? null : oldest }
    },

    async countQueued() {
      const [waiting, sending] = await Promise.all([countWaiting(call), call('countSending')])
      return waiting + sending
    },
  } satisfies Partial<Store>
}

async function countWaiting(call: Call): Promise<number> {
  let waiting = 0
  for await (const part of pagesOf((after: WalkPosition | null) => call('countSomeWaiting', after))) {
    waiting += part.waiting
  }
  return waiting
}

/** Infinity when nothing waits. */
async function findOldest(call: Call): Promise<number> {
  let oldest = Infinity
  for await (const { keys } of pagesOf((after: QueueKey | null) => call('queueKeys', after, 'none'))) {
    for (const { earliestAt } of keys) oldest = Math.min(oldest, earliestAt)
  }
  return oldest
}

/** Verbs that read what was counted: what waits is added first. */
function createCountedCalls(call: Call) {
  /** When the disk takes no more, what is added up already has to do. */
  const counted: Call = async (verb, ...input) => {
    await addWaiting(call).catch(() => {})
    return call(verb, ...input)
  }
  return {
    ipRecords: () => counted('ipRecords'),
    async warmupDays(ip, from) {
      // The gates judge by all of a day, or not yet.
      await addWaiting(call)
      return call('warmupDays', ip, from)
    },
    ipHealth: (ip, since) => counted('ipHealth', ip, since),
    ipDays: (ip, limit) => counted('ipDays', ip, limit),
    ipStatistics: (ip, from, to) => counted('ipStatistics', ip, from, to),
    ispMix: (ips, since) => counted('ispMix', ips, since),
    reportSums: (since) => counted('reportSums', since),
  } satisfies Partial<Store>
}

/** Adds up what waits by now: each call adds some of it. What comes meanwhile is not waited for. */
async function addWaiting(call: Call): Promise<void> {
  let left = await call('addWaitingCounts')
  for (let calls = left; calls > 0 && left > 0; calls -= 1) left = await call('addWaitingCounts')
}
