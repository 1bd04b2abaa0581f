/**
 * Webhook endpoints: adding, listing, changing, rotating the secret, removing.
 *
 *   enabled -> disabled   changed by the customer (manual); or by its dead letters (webhook-deliveries.ts)
 *   disabled -> enabled   changed by the customer: the counters start anew, what waited goes out
 *   any -> removed        gone for everybody; its row goes with its deliveries (webhook-log.ts)
 *
 * A rotated secret takes over by the time alone: until `switch_at` the old one signs.
 */
import type { Database } from 'better-sqlite3'
import { ServiceError } from '../../../base/errors.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import type { SigningSecrets, WebhookEndpointState } from '../../records/webhook-records.ts'
import { pageOf, positionAfter } from '../engine/pages.ts'
import { getNamed, storedIdentifier } from '../engine/stored-identifier.ts'
import { oneColumn } from '../engine/statements.ts'
import type { SomeVerbs, Verb } from '../engine/verb-types.ts'

export function createEndpointWrites(database: Database) {
  const count = database.prepare<[], number>('select count(*) from webhook_endpoints where removed_at is null').pluck()
  const add = database.prepare(`
    insert into webhook_endpoints
      (id, url, events, include, description, status, disabled_reason, sealed_secret, created_at, updated_at,
      enabled_at)
    values
      (@id, @url, @events, @include, @description, @status, iif(@status = 'disabled', 'manual', null), @sealedSecret,
      @createdAt, @createdAt, @createdAt)`)
  const numberOf = createEndpointNumber(database)
  const find = createFindWebhookEndpoint(database)
  const change = database.prepare<[string | null, string | null, string | null, string | null, number, number]>(`
    update webhook_endpoints
    set url = coalesce(?, url), events = coalesce(?, events), include = coalesce(?, include),
      description = coalesce(?, description), updated_at = ?
    where endpoint_id = ?`)
  const enable = database.prepare<[number, number]>(`
    update webhook_endpoints
    set status = 'enabled', disabled_reason = null, consecutive_failures = 0, enabled_at = ?
    where endpoint_id = ?`)
  const disable = database.prepare<[number]>(`
    update webhook_endpoints
    set status = 'disabled', disabled_reason = 'manual'
    where endpoint_id = ? and status = 'enabled'`)
  const remove = database.prepare<[number, number]>(`
    update webhook_endpoints set removed_at = ?, status = 'disabled' where endpoint_id = ?`)
  const findSwitch = oneColumn(database)<[number], number | null>(`
    select switch_at from webhook_endpoints where endpoint_id = ?`)
  const rotate = database.prepare<[Uint8Array, number, number, number]>(`
    update webhook_endpoints
    set next_sealed_secret = ?, switch_at = ?, updated_at = ?
    where endpoint_id = ?`)
  const switchSecrets = createSwitchSecrets(database)

  return {
    addWebhookEndpoint(endpoint, most = null) {
      if (most !== null && (count.get() ?? 0) >= most) {
        throw new ServiceError('conflict', `there are ${most} webhook endpoints already, the most there may be`)
      }
      const { id, events, include, ...rest } = endpoint
      const lists = { events: JSON.stringify(events), include: JSON.stringify(include) }
      add.run({ ...rest, ...lists, id: storedIdentifier('wh', id) })
    },
    updateWebhookEndpoint(id, { url, events, include, description, status }, now) {
      const number = numberOf(id)
      if (number === undefined) return null
      change.run(url ?? null, jsonOrNull(events), jsonOrNull(include), description ?? null, now, number)
      if (status === 'enabled') enable.run(now, number)
      if (status === 'disabled') disable.run(number)
      return find(id)
    },
    removeWebhookEndpoint(id, now) {
      const number = numberOf(id)
      if (number !== undefined) remove.run(now, number)
      return number !== undefined
    },
    rotateWebhookSecret(id, { sealedSecret, switchAt, now }) {
      const number = numberOf(id)
      if (number === undefined) return null
      switchSecrets(now)
      const underWay = findSwitch.get(number) ?? null
      if (underWay !== null) return { kind: 'under-way', switchAt: underWay }
      rotate.run(sealedSecret, switchAt, now, number)
      switchSecrets(now)
      return { kind: 'rotated' }
    },
  } satisfies SomeVerbs
}

interface EndpointRow extends Omit<WebhookEndpointState, 'id' | 'events' | 'include'> {
  number: number
  id: Buffer
  events: string
  include: string
}

const COLUMNS = `
  endpoint_id as number, id, url, events, include, description, status, disabled_reason as disabledReason,
  created_at as createdAt, updated_at as updatedAt, last_success_at as lastSuccessAt,
  last_failure_at as lastFailureAt, consecutive_failures as consecutiveFailures,
  (select count(*) from webhook_deliveries
    where state = 'pending' and endpoint_id = webhook_endpoints.endpoint_id) as pending,
  (select count(*) from webhook_deliveries
    where state = 'failed' and state <> 'pending' and endpoint_id = webhook_endpoints.endpoint_id
      and ended_at > webhook_endpoints.enabled_at) as deadLetters`

function toState({ number: _number, id, events, include, ...row }: EndpointRow): WebhookEndpointState {
  return {
    ...row,
    id: identifierFromBytes('wh', id),
    events: JSON.parse(events) as string[],
    include: JSON.parse(include) as WebhookEndpointState['include'],
  }
}

export function createEndpointReads(database: Database) {
  const findPage = database.prepare<[number, number], EndpointRow>(`
    select ${COLUMNS}
    from webhook_endpoints
    where removed_at is null and endpoint_id < ?
    order by endpoint_id desc
    limit +?`)
  const findSecrets = database.prepare<[Buffer], SecretColumns & { url: string }>(`
    select url, ${SECRET_COLUMNS} from webhook_endpoints where id = ? and removed_at is null`)
  return {
    listWebhookEndpoints(limit, after) {
      const rows = findPage.all(positionAfter(after), limit + 1)
      const { page, next } = pageOf(rows, limit, ({ number }) => String(number))
      return { endpoints: page.map(toState), next }
    },
    findWebhookTarget(id) {
      const row = getNamed(findSecrets, 'wh', id)
      return row === undefined ? null : { endpointId: id, url: row.url, ...secretsOf(row) }
    },
  } satisfies SomeVerbs
}

export function createFindWebhookEndpoint(database: Database): Verb<'findWebhookEndpoint'> {
  const find = database.prepare<[Buffer], EndpointRow>(`
    select ${COLUMNS} from webhook_endpoints where id = ? and removed_at is null`)
  return (id) => {
    const row = getNamed(find, 'wh', id)
    return row === undefined ? null : toState(row)
  }
}

/** The row of a living endpoint, by its identifier. */
export function createEndpointNumber(database: Database): (id: string) => number | undefined {
  const find = oneColumn(database)<[Buffer], number>(`
    select endpoint_id from webhook_endpoints where id = ? and removed_at is null`)
  return (id) => getNamed(find, 'wh', id)
}

function jsonOrNull(list: readonly string[] | undefined): string | null {
  return list === undefined ? null : JSON.stringify(list)
}

export interface SecretColumns {
  sealedSecret: Buffer
  nextSealedSecret: Buffer | null
  switchAt: number | null
}

export const SECRET_COLUMNS =
  'sealed_secret as sealedSecret, next_sealed_secret as nextSealedSecret, switch_at as switchAt'

export function secretsOf({ sealedSecret, nextSealedSecret, switchAt }: SecretColumns): SigningSecrets {
  const isRotating = nextSealedSecret !== null && switchAt !== null
  return { sealedSecret, next: isRotating ? { sealedSecret: nextSealedSecret, switchAt } : null }
}

/** Ends rotations whose time has come; the old secret is gone then. */
export function createSwitchSecrets(database: Database): (now: number) => void {
  const change = database.prepare<[number]>(`
    update webhook_endpoints
    set sealed_secret = next_sealed_secret, next_sealed_secret = null, switch_at = null
    where switch_at <= ?`)
  return (now) => void change.run(now)
}
