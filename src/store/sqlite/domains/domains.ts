/** Sending domains, their keys, and what the last check of their DNS records found. */
import type { Database } from 'better-sqlite3'
import { ServiceError } from '../../../base/errors.ts'
import type {
  DkimKeyRecord,
  DomainChange,
  DomainCheckResult,
  DomainPage,
  DomainRecord,
  ListDomainsRequest,
  PublicDkimKey,
} from '../../records/sender-records.ts'
import { createDkimKeys } from './dkim-keys.ts'
import {
  createDomainInsert,
  createLivingDomain,
  createLivingDomains,
  SENDING_ROW,
  type FoundDomain,
} from './domain-rows.ts'
import { pageOf, positionAfter } from '../engine/page-cursor.ts'
import { createEventRecorder } from '../events/record-events.ts'

export function createFindDomain(database: Database): (name: string) => DomainRecord | null {
  const find = createLivingDomain(database)
  return (name) => find(name)?.domain ?? null
}

/** Whether mail of any domain, also of a removed one, comes back to this host name. */
export function createIsReturnPath(database: Database): (host: string) => boolean {
  const find = database.prepare<[string], number>('select 1 from domains where return_path = ? limit 1').pluck()
  return (host) => find.get(host) !== undefined
}

export function createFindReturnPath(database: Database): (name: string) => string | null {
  const find = database
    .prepare<[string, string], string>(`select return_path from domains where domain_id = ${SENDING_ROW}`)
    .pluck()
  return (name) => find.get(name, name) ?? null
}

/** Removed keys that are told at most. */
const MOST_EARLIER_KEYS = 20

export function createEarlierDkimKeys(database: Database): (name: string) => PublicDkimKey[] {
  const find = database.prepare<[string, number], PublicDkimKey>(`
    select dkim_keys.algorithm, dkim_keys.public_key as publicKey
    from domains
    cross join dkim_keys on dkim_keys.domain_id = domains.domain_id
    where domains.name = ? and domains.removed_at is not null
    order by domains.domain_id desc
    limit +?`)
  return (name) => find.all(name, MOST_EARLIER_KEYS)
}

export function createListDomains(database: Database): (request: ListDomainsRequest) => DomainPage {
  const find = createLivingDomains(database)
  return ({ states, limit, after }) => {
    const found = find({ states, limit: limit + 1, before: positionAfter(after) })
    const { page, next } = pageOf(found, limit, ({ domainId }) => String(domainId))
    return { domains: page.map(({ domain }) => domain), next }
  }
}

export function createDomainsDueForCheck(database: Database): (request: { now: number; limit: number }) => string[] {
  const find = database
    .prepare<[number, number], string>(
      `
      select name
      from domains
      where removed_at is null and next_check_at <= ?
      order by next_check_at
      limit +?`,
    )
    .pluck()
  return ({ now, limit }) => find.all(now, limit)
}

export function createAddDomain(
  database: Database,
): (request: { domain: DomainRecord; most: number | null }) => { domain: DomainRecord; isNew: boolean } {
  const find = createFindDomain(database)
  const count = database.prepare<[], number>('select count(*) from domains where removed_at is null').pluck()
  const insert = createDomainInsert(database)
  const keys = createDkimKeys(database)
  return ({ domain, most }) => {
    const known = find(domain.name)
    if (known !== null) return { domain: known, isNew: false }
    if (most !== null && (count.get() ?? 0) >= most) {
      throw new ServiceError('conflict', `there are ${most} domains already, which is the limit`)
    }
    keys.add(insert(domain), domain.keys)
    return { domain: find(domain.name) ?? domain, isNew: true }
  }
}

export function createUpdateDomain(
  database: Database,
): (request: { name: string; change: DomainChange }) => DomainRecord | null {
  const findLiving = createLivingDomain(database)
  const find = createFindDomain(database)
  const update = database.prepare<[number, number, number, string | null, number]>(`
    update domains
    set tracking_opens = ?, tracking_clicks = ?, allow_subdomains = ?, ip_pool = ?
    where domain_id = ?`)
  return ({ name, change }) => {
    const found = findLiving(name)
    if (found === null) return null
    const { tracking, allowSubdomains, ipPool } = { ...found.domain, ...change }
    update.run(Number(tracking.opens), Number(tracking.clicks), Number(allowSubdomains), ipPool, found.domainId)
    return find(name)
  }
}

export function createAddDkimKeys(
  database: Database,
): (request: { name: string; keys: DkimKeyRecord[] }) => DomainRecord | null {
  const findLiving = createLivingDomain(database)
  const find = createFindDomain(database)
  const dkimKeys = createDkimKeys(database)
  return ({ name, keys }) => {
    const found = findLiving(name)
    if (found === null) return null
    dkimKeys.add(found.domainId, keys)
    return find(name)
  }
}

export function createRecordDomainCheck(database: Database): (result: DomainCheckResult) => DomainRecord | null {
  const findLiving = createLivingDomain(database)
  const find = createFindDomain(database)
  const keys = createDkimKeys(database)
  const events = createEventRecorder(database)
  const update = database.prepare(`
    update domains
    set state = ?, verified_at = ?, last_checked_at = ?, next_check_at = ?, failing_since = ?, failed_checks = ?,
      degraded_at = ?, checks = ?
    where domain_id = ?`)
  return (result) => {
    const found = findLiving(result.name)
    if (found === null) return null
    if (isOfEarlierDomain(result, found)) return found.domain
    update.run(
      result.state,
      result.verifiedAt,
      result.now,
      result.nextCheckAt,
      result.failingSince,
      result.failedChecks,
      result.degradedAt,
      JSON.stringify(result.checks),
      found.domainId,
    )
    keys.settle(found.domainId, result.keys, result.now)
    events.record(
      result.events.map((event) => ({ ...event, messageKey: null })),
      result.now,
    )
    return find(result.name)
  }
}

/** The domain was removed and added anew while it was checked: the two have no key in common. */
function isOfEarlierDomain(result: DomainCheckResult, { domain }: FoundDomain): boolean {
  const selectors = new Set(result.keys.map(({ selector }) => selector))
  return domain.keys.length > 0 && !domain.keys.some(({ selector }) => selectors.has(selector))
}
