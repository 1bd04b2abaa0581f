/**
 * Verbs over the whole queue as the main thread calls them: in parts that each hold the store for some milliseconds,
 * with whatever others have called meanwhile between them. Each part is one transaction; a failure leaves what was done
 * before it, and a repeated call goes on from there.
 */
import type { QueueGroup } from '../../mail/waiting-mail.ts'
import type { QueuedRows, QueueKey, QueueKeyPage, RouteAssignment } from '../records/queue-records.ts'
import type { Store } from '../store.ts'
import type { QueueActionStep } from './queue/queue-actions.ts'
import { addGroup, type QueueGroupStep } from './queue/queue-groups.ts'
import type { WaitingCount } from './queue/queue-upkeep.ts'
import type { WalkPosition } from './queue/waiting-rows.ts'
import { mergeQueued } from './queue/queued-rows.ts'
import type { Call } from './verbs.ts'

type QueueParts = Pick<
  Store,
  'assignRoutes' | 'moveOrphans' | 'queueGroups' | 'actOnQueue' | 'queueSummary' | 'countQueued'
>

export function createQueueParts(call: Call): QueueParts {
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
        const part = await call('moveSomeOrphans', { known, target })
        for (const { pool, messages } of part.moved) moved.set(pool, (moved.get(pool) ?? 0) + messages)
        isDone = part.isDone
      }
      return [...moved].map(([pool, messages]) => ({ pool, messages }))
    },

    async queueGroups(by, filter, now) {
      const groups = new Map<string | null, QueueGroup>()
      let after: WalkPosition | null = null
      do {
        const step: QueueGroupStep = await call('someQueueGroups', { by, filter, now, after })
        for (const group of step.groups) addGroup(groups, group)
        after = step.next
      } while (after !== null)
      return [...groups.values()].toSorted((left, right) => right.waiting - left.waiting)
    },

    async actOnQueue({ limit, ...request }) {
      const parts: QueuedRows[] = []
      let messages = 0
      let after: WalkPosition | null = null
      do {
        const step: QueueActionStep = await call('actOnSomeOfQueue', { ...request, limit: limit - messages, after })
        parts.push(step.queued)
        messages += step.messages
        after = step.next
      } while (after !== null && (request.isDryRun || messages < limit))
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
  }
}

async function countWaiting(call: Call): Promise<number> {
  let waiting = 0
  let after: WalkPosition | null = null
  do {
    const part: WaitingCount = await call('countSomeWaiting', after)
    waiting += part.waiting
    after = part.next
  } while (after !== null)
  return waiting
}

/** Infinity when nothing waits. */
async function findOldest(call: Call): Promise<number> {
  let oldest = Infinity
  let after: QueueKey | null = null
  do {
    const page: QueueKeyPage = await call('queueKeys', { after, mostRows: 'none' })
    for (const { earliestAt } of page.keys) oldest = Math.min(oldest, earliestAt)
    after = page.next
  } while (after !== null)
  return oldest
}
