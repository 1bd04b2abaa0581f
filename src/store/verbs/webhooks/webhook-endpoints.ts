/**
 * Webhook endpoints: adding, listing, changing, rotating the secret, removing.
 *
 *   enabled -> disabled   changed by the customer (manual); or by its dead letters (webhook-deliveries.ts)
 *   disabled -> enabled   changed by the customer: the counters start anew, what waited goes out
 *   any -> removed        gone for everybody; its row goes with its deliveries (webhook-log.ts)
 *
 * A rotated secret takes over by the time alone: until `switch_at` the old one signs.
 */
import type { Database } from '../../engine/database.ts'
import { ServiceError } from '../../../base/errors.ts'
import { identifierFromBytes } from '../../../base/identifier.ts'
import type { SigningSecrets, WebhookEndpointState } from '../../records/webhook-records.ts'
import { pageOf, positionAfter } from '../tools/pages.ts'
import { getNamed, storedIdentifier } from '../tools/stored-identifier.ts'
import { oneColumn } from '../tools/statements.ts'
import type { SomeVerbs, Verb } from '../tools/verb-types.ts'

export function createEndpointWrites(database: Database) {
  const count = database.prepare<[], number>('select count(*) from webhook_endpoints where removed_at is null').pluck()
  const add = database.prepare(`
    insert into webhook_endpoints
      (id, url, events, include, description, status, disabled_reason, sealed_secret, created_at, updated_at,
      enabled_at, is_test, domains)
    values
      (@id, @url, @events, @include, @description, @status, iif(@status = 'disabled', 'manual', null), @sealedSecret,
      @createdAt, @createdAt, @createdAt, @isTest, @domains)`)
  const numberOf = createEndpointNumber(database)
  const find = createFindWebhookEndpoint(database)
  const change = database.prepare<[...(string | null)[], number, number]>(`
    update webhook_endpoints
    set url = coalesce(?, url), events = coalesce(?, events), include = coalesce(?, include),
      description = coalesce(?, description), domains = coalesce(?, domains), updated_at = ?
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
      const { id, events, include, domains, isTest, ...rest } = endpoint
      const lists = {
        events: JSON.stringify(events),
        include: JSON.stringify(include),
        domains: JSON.stringify(domains),
      }
      add.run({ ...rest, ...lists, isTest: isTest === null ? null : Number(isTest), id: storedIdentifier('wh', id) })
    },
    updateWebhookEndpoint(id, { url, events, include, description, domains, status }, now) {
      const number = numberOf(id)
      if (number === undefined) return null
      const lists = [jsonOrNull(events), jsonOrNull(include), description ?? null, jsonOrNull(domains)]
      change.run(url ?? null, ...lists, now, number)
      if (status === 'enabled') enable.run(now, number)
      if (status === 'disabled') disable.run(number)
      return find(id)
    },
    removeWebhookEndpoint(id, now) {
      const number = numberOf(id)
      if (number !== undefined) remove.run(now, number)
      return number !== undefined
    },
    rotateWebhookSecret(id, { sealedSecret, switchAt, now, isLost = false }) {
      const number = numberOf(id)
      if (number === undefined) return null
      switchSecrets(now)
      const underWay = findSwitch.get(number) ?? null
      if (underWay !== null && !isLost) return { kind: 'under-way', switchAt: underWay }
      rotate.run(sealedSecret, switchAt, now, number)
      switchSecrets(now)
      return { kind: 'rotated' }
    },
  } satisfies SomeVerbs
}

interface ReachColumns {
  isTest: number | null
  domains: string
}

interface EndpointRow
  extends Omit<WebhookEndpointState, 'id' | 'events' | 'include' | 'isTest' | 'domains'>, ReachColumns {
  number: number
  id: Buffer
  events: string
  include: string
}

/** Deliveries of an endpoint that a look at it counts; of dead letters the newest, as lookups/figures.ts has it. */
const MOST_COUNTED = 10_000

const COLUMNS = `
  endpoint_id as number, id, url, events, include, is_test as isTest, domains, description, status, disabled_reason as disabledReason,
  created_at as createdAt, updated_at as updatedAt, last_success_at as lastSuccessAt,
  last_failure_at as lastFailureAt, consecutive_failures as consecutiveFailures,
  (select count(*) from (
    select 1 from webhook_deliveries
    where state = 'pending' and endpoint_id = webhook_endpoints.endpoint_id
    limit ${MOST_COUNTED}) as waiting) as pending,
  (select count(*) from (
    select ended_at from webhook_deliveries
    where state = 'failed' and state <> 'pending' and endpoint_id = webhook_endpoints.endpoint_id
    order by id desc
    limit ${MOST_COUNTED}) as dead
    where dead.ended_at > webhook_endpoints.enabled_at) as deadLetters`

function toState({ number: _number, id, events, include, ...row }: EndpointRow): WebhookEndpointState {
  return {
    ...row,
    id: identifierFromBytes('wh', id),
    events: JSON.parse(events) as string[],
    include: JSON.parse(include) as WebhookEndpointState['include'],
    ...reachOf(row),
  }
}

/** Of an endpoint's row. */
function reachOf({ isTest, domains }: ReachColumns): Pick<WebhookEndpointState, 'isTest' | 'domains'> {
  return { isTest: isTest === null ? null : isTest === 1, domains: JSON.parse(domains) as string[] }
}

export function createEndpointReads(database: Database) {
  const findPage = database.prepare<
    [{ before: number; isTest: number | null; domains: string | null; limit: number }],
    EndpointRow
  >(`
    select ${COLUMNS}
    from webhook_endpoints
    where removed_at is null and endpoint_id < @before and (@isTest is null or is_test = @isTest)
      and (@domains is null or domains <> '[]' and not exists (
        select 1 from json_each(webhook_endpoints.domains)
        where value not in (select value from json_each(@domains))))
    order by endpoint_id desc
    limit +@limit`)
  const findSecrets = database.prepare<[Buffer], SecretColumns & ReachColumns & { url: string }>(`
    select url, is_test as isTest, domains, ${SECRET_COLUMNS} from webhook_endpoints where id = ? and removed_at is null`)
  return {
    listWebhookEndpoints({ isTest, domains }, limit, after) {
      const reach = {
        isTest: isTest === null ? null : Number(isTest),
        domains: domains.length === 0 ? null : JSON.stringify(domains),
      }
      const rows = findPage.all({ ...reach, before: positionAfter(after), limit: limit + 1 })
      const { page, next } = pageOf(rows, limit, ({ number }) => String(number))
      return { endpoints: page.map(toState), next }
    },
    findWebhookTarget(id) {
      const row = getNamed(findSecrets, 'wh', id)
      return row === undefined ? null : { endpointId: id, url: row.url, ...secretsOf(row), ...reachOf(row) }
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
