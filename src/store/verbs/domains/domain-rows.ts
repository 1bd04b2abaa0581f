/** Rows of domains and of their keys, to and from records. A removed domain keeps its row. */
import type { Database } from '../../engine/database.ts'
import { ServiceError } from '../../../base/errors.ts'
import type { DkimKeyRecord, DomainRecord, RecordCheck } from '../../records/sender-records.ts'
import { oneColumn } from '../tools/statements.ts'

/** A domain with the number of its row. */
export interface FoundDomain {
  domainId: number
  domain: DomainRecord
}

export interface DomainRow extends Omit<DomainRecord, 'keys' | 'tracking' | 'allowSubdomains' | 'checks'> {
  domainId: number
  trackingOpens: number
  trackingClicks: number
  allowSubdomains: number
  checks: string
}

export const DOMAIN_COLUMNS = `
  domain_id as domainId, name, state, return_path as returnPath, tracking_domain as trackingDomain,
  tracking_opens as trackingOpens, tracking_clicks as trackingClicks, allow_subdomains as allowSubdomains,
  ip_pool as ipPool, created_at as createdAt, verified_at as verifiedAt, last_checked_at as lastCheckedAt,
  next_check_at as nextCheckAt, failing_since as failingSince, failed_checks as failedChecks,
  degraded_at as degradedAt, checks`

/** The living domain of this name. */
export function createLivingDomain(database: Database): (name: string) => FoundDomain | null {
  const find = database.prepare<[string], DomainRow>(`
    select ${DOMAIN_COLUMNS} from domains where name = ? and removed_at is null`)
  const toFound = createRowReader(database)
  return (name) => {
    const row = find.get(name)
    return row === undefined ? null : toFound(row)
  }
}

export function createRowReader(database: Database): (row: DomainRow) => FoundDomain {
  const { keysOf } = createDkimKeys(database)
  return ({ domainId, trackingOpens, trackingClicks, allowSubdomains, checks, ...rest }) => ({
    domainId,
    domain: {
      ...rest,
      keys: keysOf(domainId),
      tracking: { opens: trackingOpens === 1, clicks: trackingClicks === 1 },
      allowSubdomains: allowSubdomains === 1,
      checks: JSON.parse(checks) as RecordCheck[],
    },
  })
}

/** Adds the row of a new domain, without its keys; returns its number. */
export function createDomainInsert(database: Database): (domain: DomainRecord) => number {
  const insert = database.prepare<[Omit<DomainRow, 'domainId'>]>(`
    insert into domains
      (name, state, return_path, tracking_domain, tracking_opens, tracking_clicks, allow_subdomains, ip_pool,
      created_at, verified_at, last_checked_at, next_check_at, failing_since, failed_checks, degraded_at, checks)
    values
      (@name, @state, @returnPath, @trackingDomain, @trackingOpens, @trackingClicks, @allowSubdomains, @ipPool,
      @createdAt, @verifiedAt, @lastCheckedAt, @nextCheckAt, @failingSince, @failedChecks, @degradedAt, @checks)`)
  return ({ tracking, allowSubdomains, checks, ...domain }) => {
    const { lastInsertRowid } = insert.run({
      ...domain,
      trackingOpens: Number(tracking.opens),
      trackingClicks: Number(tracking.clicks),
      allowSubdomains: Number(allowSubdomains),
      checks: JSON.stringify(checks),
    })
    return Number(lastInsertRowid)
  }
}

/**
 * The row of a name whose mail waits: the newest that was ever verified, for one that never was has accepted no mail.
 * Binds the name twice.
 */
export const SENDING_ROW = `coalesce(
      (select max(domain_id) from domains where name = ? and verified_at is not null),
      (select max(domain_id) from domains where name = ?))`

/** The host of a sending domain, whose name is bound twice. */
export const TRACKING_HOST_QUERY = `
  select tracking_domain
  from domains
  where domain_id = ${SENDING_ROW} and exists (
    select 1
    from json_each(domains.checks)
    where json_extract(value, '$.purpose') = 'tracking' and json_extract(value, '$.status') = 'verified')`

/** A sending domain's own host of tracked links once a check found its record right, or null. */
export function createFindTrackingHost(database: Database): (domain: string) => string | null {
  const find = oneColumn(database)<[string, string], string>(TRACKING_HOST_QUERY)
  return (domain) => find.get(domain, domain) ?? null
}

/**
 * The DKIM keys of a domain's row (RFC 6376 §3.6.1, RFC 8463 §4). The private ones are sealed before they come here.
 */
export function createDkimKeys(database: Database) {
  const find = database.prepare<[number], DkimKeyRecord & { dkimKeyId: number }>(`
    select
      dkim_key_id as dkimKeyId, selector, algorithm, role, public_key as publicKey,
      sealed_private_key as sealedPrivateKey, created_at as createdAt, seen_at as seenAt, retire_at as retireAt
    from dkim_keys
    where domain_id = ?`)
  const insert = database.prepare<[DkimKeyRecord & { domainId: number }]>(`
    insert into dkim_keys
      (domain_id, selector, algorithm, role, public_key, sealed_private_key, created_at, seen_at, retire_at)
    values
      (@domainId, @selector, @algorithm, @role, @publicKey, @sealedPrivateKey, @createdAt, @seenAt, @retireAt)`)
  const change = database.prepare<[string, number | null, number | null, number, string]>(`
    update dkim_keys set role = ?, seen_at = ?, retire_at = ? where domain_id = ? and selector = ?`)
  const drop = database.prepare<[number, string]>('delete from dkim_keys where domain_id = ? and selector = ?')
  const dropNext = database.prepare<[number, string]>(`
    delete from dkim_keys where domain_id = ? and selector = ? and role = 'next'`)

  return {
    /** Oldest first. */
    keysOf: (domainId: number): DkimKeyRecord[] =>
      find
        .all(domainId)
        .sort((left, right) => left.createdAt - right.createdAt || left.dkimKeyId - right.dkimKeyId)
        .map(({ dkimKeyId: _number, ...key }) => key),
    /**
     * ServiceError conflict when the domain has a key of the same selector, or a next one of the same algorithm: another
     * node has rotated at the same time.
     */
    add(domainId: number, keys: readonly DkimKeyRecord[]): void {
      const present = find.all(domainId)
      const taken = new Set(present.map(({ selector }) => selector))
      const rotating = new Set(present.filter(({ role }) => role === 'next').map(({ algorithm }) => algorithm))
      for (const key of keys) {
        if (taken.has(key.selector)) throw new ServiceError('conflict', `the selector ${key.selector} is in use`)
        if (key.role === 'next' && rotating.has(key.algorithm)) {
          throw new ServiceError('conflict', 'the next DKIM key is there already and waits to be seen')
        }
        taken.add(key.selector)
        insert.run({ ...key, domainId })
      }
    },
    /** One that has taken over meanwhile stays. */
    dropNext(domainId: number, selectors: readonly string[]): void {
      for (const selector of selectors) dropNext.run(domainId, selector)
    },
    /**
     * Makes a domain's keys what a check made of them, as it read them at `readAt`: a key that came since then stays,
     * one that went since then does not come back.
     */
    settle(domainId: number, keys: readonly DkimKeyRecord[], readAt: number): void {
      const kept = new Map(keys.map((key) => [key.selector, key]))
      for (const { selector, createdAt } of find.all(domainId)) {
        const key = kept.get(selector)
        if (key !== undefined) change.run(key.role, key.seenAt, key.retireAt, domainId, selector)
        else if (createdAt < readAt) drop.run(domainId, selector)
      }
    },
  }
}
