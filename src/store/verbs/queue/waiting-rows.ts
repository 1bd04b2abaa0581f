/**
 * A walk over everything that waits, for the operator: about 10 ms a step, whatever the filter leaves. Rows are met by
 * lane and number; what is accepted meanwhile may be met or not, nothing else is missed or met twice.
 */
import type { Database } from '../../engine/database.ts'
import type { Stream } from '../../../mail/message.ts'
import type { QueueFilter, QueueGroup, QueueGrouping } from '../../../mail/waiting-mail.ts'
import type { WaitingFor } from '../../records/queue-records.ts'
import { askAhead, foundOfEach, lengthOf, oneColumn } from '../tools/statements.ts'

/** What an operator holds, and what a restore or a move has held. */
export const COUNT_HELD = `select count(*) from messages where state = 'waiting' and waiting_for = 'held'`

const groupOf = (row: WaitingRow, by: QueueGrouping, now: number): QueueGroup => ({
  name: nameOf(row, by),
  waiting: 1,
  due: row.nextAt <= now ? 1 : 0,
  held: row.waitingFor === 'held' ? 1 : 0,
  oldestAcceptedAt: row.createdAt,
})

export interface WaitingRow {
  seq: number
  id: Buffer
  contentId: number
  laneId: number
  pool: string
  route: string
  isp: string | null
  domain: string
  stream: Stream
  isRetry: number
  recipient: string
  recipientDomain: string
  lastIp: string | null
  waitingFor: WaitingFor | null
  nextAt: number
  createdAt: number
}

/** The last row that was looked at. */
export type WalkPosition = Pick<WaitingRow, 'laneId' | 'seq'>

const MOST_ROWS = 1_000
/** Lanes without a row cost a seek each. */
const MOST_LANES = 2_000

export function createWaitingRowsWalk(database: Database) {
  const findLanes = oneColumn(database)<[number, string | null, string | null, number], number>(`
    select lane_id
    from lanes
    where lane_id >= ? and (? is null or domain = ?)
    order by lane_id
    limit +?`)
  const findRows = database.prepare<[number, number, number], WaitingRow>(`
    select
      messages.seq, messages.id, messages.content_id as contentId, messages.lane_id as laneId, pools.name as pool,
      routes.name as route, coalesce(messages.isp, routes.isp) as isp, lanes.domain, lanes.stream,
      messages.is_retry as isRetry, messages.recipient, messages.recipient_domain as recipientDomain,
      messages.last_ip as lastIp, messages.waiting_for as waitingFor, messages.next_at as nextAt,
      messages.created_at as createdAt
    from messages
    cross join pools on pools.pool_id = messages.pool_id
    cross join routes on routes.route_id = messages.route_id
    cross join lanes on lanes.lane_id = messages.lane_id
    where messages.state = 'waiting' and messages.lane_id = ? and messages.seq > ?
    order by messages.seq
    limit +?`)

  return (filter: QueueFilter, after: WalkPosition | null): { rows: WaitingRow[]; next: WalkPosition | null } => {
    const domain = filter.domain ?? null
    const lanes = findLanes.all(after?.laneId ?? 0, domain, domain, MOST_LANES)
    const rows: WaitingRow[] = []
    let room = MOST_ROWS
    const ask = (laneId: number, most: number) =>
      askAhead(findRows, laneId, laneId === after?.laneId ? after.seq : 0, most)
    const each = foundOfEach(lanes, ask, lengthOf, () => room)
    for (const [laneId, found] of each) {
      rows.push(...found.filter((row) => isMeant(row, filter)))
      room -= found.length
      const last = found.at(-1)
      if (room <= 0 && last !== undefined) return { rows, next: { laneId, seq: last.seq } }
    }
    const lastLane = lanes.length < MOST_LANES ? undefined : lanes.at(-1)
    return { rows, next: lastLane === undefined ? null : { laneId: lastLane + 1, seq: 0 } }
  }
}

function isMeant(
  row: WaitingRow,
  { pool, isp, route, recipientDomain, ip, isHeld, acceptedBefore }: QueueFilter,
): boolean {
  return (
    (pool === undefined || row.pool === pool) &&
    (isp === undefined || row.isp === isp) &&
    (route === undefined || row.route === route) &&
    (recipientDomain === undefined || row.recipientDomain === recipientDomain) &&
    (ip === undefined || row.lastIp === ip) &&
    (isHeld === undefined || (row.waitingFor === 'held') === isHeld) &&
    (acceptedBefore === undefined || row.createdAt < acceptedBefore)
  )
}

interface QueueGroupRequest {
  by: QueueGrouping
  filter: QueueFilter
  now: number
  after: WalkPosition | null
}

/** What waits, in groups: one step of the walk at a time. */
export function createQueueGroupStep(database: Database) {
  const walk = createWaitingRowsWalk(database)
  return ({ by, filter, now, after }: QueueGroupRequest) => {
    const { rows, next } = walk(filter, after)
    const groups = new Map<string | null, QueueGroup>()
    for (const row of rows) addGroup(groups, groupOf(row, by, now))
    return { groups: [...groups.values()], next }
  }
}

function nameOf({ isp, recipientDomain, domain, lastIp, pool }: WaitingRow, by: QueueGrouping): string | null {
  return { isp, recipientDomain, domain, ip: lastIp, pool }[by]
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
