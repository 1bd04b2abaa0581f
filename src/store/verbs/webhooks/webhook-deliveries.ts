/**
 * Webhook deliveries on their way.
 *
 *   pending -> pending     claimed (leased: next_at is the end of the lease), or failed and due again
 *   pending -> succeeded   answered 200
 *   pending -> failed      the last retry failed: a dead letter; too many of them turn the endpoint off
 *
 * No endpoint gets more than its share at once, and slots are dealt in turns: none keeps another waiting, however many
 * of its deliveries are due. Those of a replay go behind the others of their endpoint.
 */
import type { Database } from '../../engine/database.ts'
import { SECOND } from '../../../base/clock.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import type { EventKind } from '../../../mail/event.ts'
import type { WebhookResult, WebhookTarget } from '../../records/webhook-records.ts'
import { storedIdentifier } from '../tools/stored-identifier.ts'
import { SECRET_COLUMNS, secretsOf, type SecretColumns } from './webhook-endpoints.ts'
import { createFloor, type Floor } from '../tools/floor.ts'
import { ask, askAhead, firstOfEach, oneColumn } from '../tools/statements.ts'
import type { Verb } from '../tools/verb-types.ts'

interface DueRow {
  key: number
  nextAt: number
}

/** Of one endpoint: how many of its deliveries may be claimed. */
interface Share {
  number: number
  most: number
  underWay: number
  target: WebhookTarget
}

/** A delivery that could be claimed, and how many of its endpoint would be under way before it. */
interface Candidate extends DueRow {
  turn: number
  target: WebhookTarget
}

/** What is written now may be due so much earlier: it was asked for then. */
const LATE = 5 * SECOND

export function createClaimWebhooks(database: Database): Verb<'claimWebhooks'> {
  const findEndpoints = database.prepare<[], SecretColumns & { number: number; id: Buffer; url: string }>(`
    select endpoint_id as number, id, url, ${SECRET_COLUMNS}
    from webhook_endpoints
    where status = 'enabled'
    order by endpoint_id`)
  const findDue = database.prepare<[number, number, number, number, number], DueRow>(`
    select delivery_seq as key, next_at as nextAt
    from webhook_deliveries
    where state = 'pending' and endpoint_id = +? and is_behind = +? and next_at between +? and +?
    order by next_at, delivery_seq
    limit +?`)
  // Only of what is claimed: with many endpoints, most candidates are left for the next rounds.
  const read = database.prepare<
    [number],
    { key: number; id: Buffer; eventId: Buffer; kind: EventKind; body: string; attempts: number }
  >(`
    select
      deliveries.delivery_seq as key, deliveries.id, events.id as eventId, events.kind,
      coalesce(deliveries.body, events.body) as body, deliveries.attempts
    from webhook_deliveries as deliveries
    cross join events on events.event_seq = deliveries.event_seq
    where deliveries.delivery_seq = +?`)
  const lease = database.prepare<[number, number, number]>(`
    update webhook_deliveries set next_at = ?, lease_epoch = ? where delivery_seq = ?`)

  const floors = new Map<string, Floor>()
  const askDue = (endpoint: number, isBehind: number, now: number, most: number): (() => DueRow[]) => {
    const name = `${endpoint} ${isBehind}`
    const floor = floors.get(name) ?? createFloor()
    floors.set(name, floor)
    const found = askAhead(findDue, endpoint, isBehind, floor.from(now), now, most)
    return () => {
      const rows = found()
      if (rows[0] !== undefined) floor.note(Math.min(rows[0].nextAt, now - LATE), now)
      return rows
    }
  }
  /** Live ones first; each with the place it would have among those of its endpoint. */
  const candidatesOf = (shares: readonly Share[], now: number): Candidate[] => {
    const live = shares.map(({ number, most }) => askDue(number, 0, now, most))
    const behind = shares.map(({ number, most }) => askDue(number, 1, now, most))
    return shares.flatMap(({ most, underWay, target }, index) => {
      const rows = live[index]?.() ?? []
      if (rows.length < most) rows.push(...(behind[index]?.() ?? []).slice(0, most - rows.length))
      return rows.map((row, place) => ({ ...row, turn: underWay + place, target }))
    })
  }
  return ({ now, epoch, leaseUntil, limit, perEndpoint, busy, ahead = {} }) => {
    const shares = findEndpoints.all().flatMap(({ number, id, url, ...secrets }): Share[] => {
      const endpointId = identifierFromBytes('wh', id)
      const underWay = busy[endpointId] ?? 0
      const most = Math.min(perEndpoint + (ahead[endpointId] ?? 0) - underWay, limit)
      return most <= 0 ? [] : [{ number, most, underWay, target: { endpointId, url, ...secretsOf(secrets) } }]
    })
    const candidates = candidatesOf(shares, now)
      .toSorted((left, right) => left.turn - right.turn || left.nextAt - right.nextAt)
      .slice(0, limit)
    const rows = firstOfEach(
      read,
      candidates.map(({ key }) => [key]),
    )
    return candidates.flatMap(({ key, target }, index) => {
      const row = rows[index]
      if (row === undefined) return []
      lease.run(leaseUntil, epoch, key)
      return [
        { ...row, ...target, id: identifierFromBytes('whd', row.id), eventId: identifierFromBytes('evt', row.eventId) },
      ]
    })
  }
}

export function createRecordWebhookResults(database: Database): Verb<'recordWebhookResults'> {
  // Only what is pending is leased; named as well, its state leads PostgreSQL to a larger index.
  const findHeld = oneColumn(database)<[number, Buffer, number], number>(`
    select endpoint_id
    from webhook_deliveries
    where delivery_seq = +? and id = ? and lease_epoch = +?`)
  const findAttempt = database.prepare<[number, number]>(`
    select 1 from webhook_attempts where delivery_seq = ? and at = ?`)
  const addAttempt = database.prepare(`
    insert into webhook_attempts (delivery_seq, at, duration_milliseconds, status, error, answer)
    values (?, ?, ?, ?, ?, ?)
    on conflict do nothing`)
  const settle = createSettling(database)
  const beginCounters = createEndpointCounters(database)
  const disableFailing = createFailureSwitch(database)

  return ({ epoch, results, disableAfter }) => {
    const disabled: string[] = []
    const counters = beginCounters()
    const held = results.map(({ key, id }) => ask(findHeld, key, storedIdentifier('whd', id), epoch))
    const posts = results.map(({ key, at }) => ask(findAttempt, key, at))
    const settled = new Set<number>()
    for (const [index, result] of results.entries()) {
      const [endpoint] = held[index]?.() ?? []
      // A post that is recorded already: the batch was repeated after the delivery had been claimed again.
      const isKnown = settled.has(result.key) || posts[index]?.()[0] !== undefined
      if (endpoint === undefined || isKnown) continue
      const { key, at, durationMilliseconds, status, error, answer } = result
      addAttempt.run(key, at, Math.round(durationMilliseconds), status, error, answer)
      settled.add(key)
      settle(result)
      counters.add(endpoint, result)
      if (result.next.kind !== 'dead-letter' || disableAfter === null) continue
      disabled.push(...disableFailing(endpoint, result.endedAt, disableAfter))
    }
    counters.write()
    return { disabled }
  }
}

function createSettling(database: Database): (result: WebhookResult) => void {
  const succeed = database.prepare<[number, number]>(`
    update webhook_deliveries set state = 'succeeded', ended_at = ?, lease_epoch = null where delivery_seq = ?`)
  const retry = database.prepare<[number, number]>(`
    update webhook_deliveries set next_at = ?, attempts = attempts + 1, lease_epoch = null where delivery_seq = ?`)
  const bury = database.prepare<[number, number]>(
    `update webhook_deliveries
    set state = 'failed', ended_at = ?, attempts = attempts + 1, lease_epoch = null
    where delivery_seq = ?`,
  )
  return ({ key, next, endedAt }) => {
    if (next.kind === 'retry') retry.run(next.at, key)
    else if (next.kind === 'succeeded') succeed.run(endedAt, key)
    else bury.run(endedAt, key)
  }
}

/** What it returns counts the results of one verb: successes in a row are one write, of the last of them. */
function createEndpointCounters(database: Database) {
  // To the second: the row is read with each claim, and each change leaves an older one behind for a while.
  const succeed = database.prepare<[number, number, number]>(`
    update webhook_endpoints set last_success_at = ?, consecutive_failures = 0
    where endpoint_id = ? and (consecutive_failures > 0 or coalesce(last_success_at, 0) <= ?)`)
  const fail = database.prepare<[number, number]>(`
    update webhook_endpoints
    set last_failure_at = ?, consecutive_failures = consecutive_failures + 1
    where endpoint_id = ?`)
  return () => {
    const succeededAt = new Map<number, number>()
    const write = (): void => {
      for (const [endpoint, at] of succeededAt) succeed.run(at, endpoint, at - SECOND)
      succeededAt.clear()
    }
    return {
      add(endpoint: number, { next, endedAt }: WebhookResult): void {
        if (next.kind === 'succeeded') return void succeededAt.set(endpoint, endedAt)
        // Failures are counted from the success before them.
        write()
        fail.run(endedAt, endpoint)
      },
      write,
    }
  }
}

/** webhooks/README.md "Deliveries": so many dead letters, without a success, turn an endpoint off. */
const DEAD_LETTERS_THAT_DISABLE = 10
/** Dead letters that are looked at, from the newest on: those of long ago are not counted one by one. */
const DEAD_LETTERS_READ = 1_000

/** Returns the identifier of an endpoint that it turned off. */
function createFailureSwitch(database: Database): (endpoint: number, now: number, disableAfter: number) => string[] {
  const findWorked = oneColumn(database)<[number], number>(`
    select max(coalesce(last_success_at, 0), enabled_at) from webhook_endpoints where endpoint_id = ?`)
  const countDead = oneColumn(database)<[number, number, number], number>(`
    select count(*)
    from (
      select ended_at
      from webhook_deliveries
      where endpoint_id = ? and state = 'failed' and state <> 'pending'
      order by id desc
      limit +?
    ) as newest
    where ended_at > ?`)
  const disable = oneColumn(database)<[number], Buffer>(`
    update webhook_endpoints
    set status = 'disabled', disabled_reason = 'failing'
    where endpoint_id = ? and status = 'enabled'
    returning id`)
  return (endpoint, now, disableAfter) => {
    const workedAt = findWorked.get(endpoint) ?? now
    if (now - workedAt < disableAfter) return []
    const dead = countDead.get(endpoint, DEAD_LETTERS_READ, workedAt) ?? 0
    if (dead < DEAD_LETTERS_THAT_DISABLE) return []
    return disable.all(endpoint).map((id) => identifierFromBytes('wh', id))
  }
}

export function createEarliestWebhookDueAt(database: Database): Verb<'earliestWebhookDueAt'> {
  const findEndpoints = oneColumn(database)<[], number>(`
    select endpoint_id from webhook_endpoints where status = 'enabled'`)
  const findEarliest = oneColumn(database)<[number, number, number], number | null>(`
    select min(next_at)
    from webhook_deliveries
    where state = 'pending' and endpoint_id = +? and is_behind = +? and next_at > +?`)
  return (after = 0) => {
    const lists = findEndpoints
      .all()
      .flatMap((number) => [
        [number, 0, after - LATE] as [number, number, number],
        [number, 1, after - LATE] as [number, number, number],
      ])
    const earliest = Math.min(...firstOfEach(findEarliest, lists).map((time) => time ?? Infinity))
    return Number.isFinite(earliest) ? earliest : null
  }
}
