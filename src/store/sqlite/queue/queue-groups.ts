/** What waits, in groups: one step of the walk at a time. */
import type { Database } from 'better-sqlite3'
import type { QueueFilter, QueueGroup, QueueGrouping } from '../../../mail/waiting-mail.ts'
import { createWaitingRowsWalk, type WaitingRow, type WalkPosition } from './waiting-rows.ts'

export interface QueueGroupStep {
  groups: QueueGroup[]
  next: WalkPosition | null
}

export function createQueueGroupStep(
  database: Database,
): (request: { by: QueueGrouping; filter: QueueFilter; now: number; after: WalkPosition | null }) => QueueGroupStep {
  const walk = createWaitingRowsWalk(database)
  return ({ by, filter, now, after }) => {
    const { rows, next } = walk(filter, after)
    const groups = new Map<string | null, QueueGroup>()
    for (const row of rows) addGroup(groups, groupOf(row, by, now))
    return { groups: [...groups.values()], next }
  }
}

const groupOf = (row: WaitingRow, by: QueueGrouping, now: number): QueueGroup => ({
  name: nameOf(row, by),
  waiting: 1,
  due: row.nextAt <= now ? 1 : 0,
  held: row.waitingFor === 'held' ? 1 : 0,
  oldestAcceptedAt: row.createdAt,
})

function nameOf({ isp, recipientDomain, lastIp, pool }: WaitingRow, by: QueueGrouping): string | null {
  return { isp, domain: recipientDomain, ip: lastIp, pool }[by]
}

/** Adds up what has the same name. */
export function addGroup(groups: Map<string | null, QueueGroup>, part: QueueGroup): void {
  const known = groups.get(part.name)
  if (known === undefined) {
    groups.set(part.name, part)
    return
  }
  known.waiting += part.waiting
  known.due += part.due
  known.held += part.held
  known.oldestAcceptedAt = Math.min(known.oldestAcceptedAt, part.oldestAcceptedAt)
}
