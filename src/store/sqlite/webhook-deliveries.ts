/**
 * Webhook endpoints, and the deliveries on their way to them.
 *
 *   pending -> pending     claimed (leased: next_at is the end of the lease), or failed and due again
 *   pending -> succeeded   answered 200
 *   pending -> failed      the last retry failed: a dead letter
 *
 * No endpoint gets more than its share at once, so one that hangs holds up nobody else.
 */
import type { Database } from 'better-sqlite3'
import { unreachable } from '../../base/errors.ts'
import { identifierFromBytes } from '../../base/identifier.ts'
import type { EventKind } from '../../mail/event.ts'
import type { ClaimedWebhookDelivery, ClaimWebhooksRequest, WebhookEndpointRecord, WebhookResult } from '../records.ts'
import { storedIdentifier } from './stored-identifier.ts'

export function createAddWebhookEndpoint(database: Database): (endpoint: WebhookEndpointRecord) => void {
  const add = database.prepare(`
    insert into webhook_endpoints (id, url, events, description, status, sealed_secret, created_at)
    values (?, ?, ?, ?, ?, ?, ?)`)
  return (endpoint) => {
    add.run(
      storedIdentifier('wh', endpoint.id), endpoint.url, JSON.stringify(endpoint.events), endpoint.description,
      endpoint.status, endpoint.sealedSecret, endpoint.createdAt,
    )
  }
}

interface DueRow {
  key: number
  id: Buffer
  eventId: Buffer
  kind: EventKind
  body: string
  attempts: number
  nextAt: number
}

interface EndpointRow {
  number: number
  id: Buffer
  url: string
  sealedSecret: Buffer
}

export function createClaimWebhooks(database: Database): (request: ClaimWebhooksRequest) => ClaimedWebhookDelivery[] {
  const findEndpoints = database.prepare<[], EndpointRow>(`
    select endpoint_id as number, id, url, sealed_secret as sealedSecret
    from webhook_endpoints
    where status = 'enabled'`)
  const findDue = database.prepare<[number, number, number], DueRow>(`
    select
      deliveries.delivery_seq as key, deliveries.id, events.id as eventId, events.kind, events.body,
      deliveries.attempts, deliveries.next_at as nextAt
    from webhook_deliveries as deliveries
    cross join events on events.event_seq = deliveries.event_seq
    where deliveries.state = 'pending' and deliveries.endpoint_id = ? and deliveries.next_at <= ?
    order by deliveries.next_at
    limit ?`)
  const lease = database.prepare<[number, number, number]>(
    'update webhook_deliveries set next_at = ?, lease_epoch = ? where delivery_seq = ?',
  )

  return ({ now, epoch, leaseUntil, limit, perEndpoint, busy }) => {
    const due = findEndpoints.all().flatMap(({ number, id, url, sealedSecret }) => {
      const endpointId = identifierFromBytes('wh', id)
      const room = perEndpoint - (busy[endpointId] ?? 0)
      if (room <= 0) return []
      return findDue.all(number, now, Math.min(room, limit)).map((row) => ({ ...row, endpointId, url, sealedSecret }))
    })
    due.sort((left, right) => left.nextAt - right.nextAt)
    return due.slice(0, limit).map(({ nextAt: _dueAt, ...row }) => {
      lease.run(leaseUntil, epoch, row.key)
      return { ...row, id: identifierFromBytes('whd', row.id), eventId: identifierFromBytes('evt', row.eventId) }
    })
  }
}

export function createRecordWebhookResults(
  database: Database,
): (request: { epoch: number; results: WebhookResult[] }) => void {
  const findHeld = database
    .prepare<[number, number], number>(
      `select 1 from webhook_deliveries where delivery_seq = ? and lease_epoch = ? and state = 'pending'`,
    )
    .pluck()
  const addAttempt = database.prepare(`
    insert into webhook_attempts (delivery_seq, at, duration_milliseconds, status, error, answer)
    values (?, ?, ?, ?, ?, ?)
    on conflict do nothing`)
  const succeed = database.prepare<[number]>(
    `update webhook_deliveries set state = 'succeeded', lease_epoch = null where delivery_seq = ?`,
  )
  const retry = database.prepare<[number, number]>(
    'update webhook_deliveries set next_at = ?, attempts = attempts + 1, lease_epoch = null where delivery_seq = ?',
  )
  const bury = database.prepare<[number]>(
    `update webhook_deliveries
    set state = 'failed', attempts = attempts + 1, lease_epoch = null
    where delivery_seq = ?`,
  )
  const settle = ({ key, next }: WebhookResult): void => {
    switch (next.kind) {
      case 'succeeded':
        succeed.run(key)
        return
      case 'retry':
        retry.run(next.at, key)
        return
      case 'dead-letter':
        bury.run(key)
        return
      default:
        unreachable(next)
    }
  }

  return ({ epoch, results }) => {
    for (const result of results) {
      if (findHeld.get(result.key, epoch) === undefined) continue
      const { changes } = addAttempt.run(
        result.key, result.at, Math.round(result.durationMilliseconds), result.status, result.error, result.answer,
      )
      // A post that is recorded already: the batch was repeated after the delivery had been claimed again.
      if (changes === 1) settle(result)
    }
  }
}

export function createEarliestWebhookDueAt(database: Database): () => number | null {
  const findEarliest = database
    .prepare<[], number | null>(`
      select min((
        select min(next_at)
        from webhook_deliveries
        where state = 'pending' and endpoint_id = webhook_endpoints.endpoint_id
      ))
      from webhook_endpoints
      where status = 'enabled'`)
    .pluck()
  return () => findEarliest.get() ?? null
}
