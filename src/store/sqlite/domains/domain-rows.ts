/** Rows of domains, to and from records. A removed domain keeps its row; only the functions that say so find it. */
import type { Database } from 'better-sqlite3'
import type { DomainRecord, DomainState, RecordCheck } from '../../records/sender-records.ts'
import { createDkimKeys } from './dkim-keys.ts'

/** A domain with the number of its row. */
export interface FoundDomain {
  domainId: number
  domain: DomainRecord
}

interface DomainRow extends Omit<DomainRecord, 'keys' | 'tracking' | 'allowSubdomains' | 'checks'> {
  domainId: number
  trackingOpens: number
  trackingClicks: number
  allowSubdomains: number
  checks: string
}

const DOMAIN_COLUMNS = `
  domain_id as domainId, name, state, return_path as returnPath, tracking_domain as trackingDomain,
  tracking_opens as trackingOpens, tracking_clicks as trackingClicks, allow_subdomains as allowSubdomains,
  ip_pool as ipPool, created_at as createdAt, verified_at as verifiedAt, last_checked_at as lastCheckedAt,
  next_check_at as nextCheckAt, failing_since as failingSince, failed_checks as failedChecks,
  degraded_at as degradedAt, checks`

/** The living domain of this name. */
export function createLivingDomain(database: Database): (name: string) => FoundDomain | null {
  const find = database.prepare<[string], DomainRow>(
    `select ${DOMAIN_COLUMNS} from domains where name = ? and removed_at is null`,
  )
  const toFound = createRowReader(database)
  return (name) => {
    const row = find.get(name)
    return row === undefined ? null : toFound(row)
  }
}

interface LivingDomainsRequest {
  states: DomainState[] | null
  limit: number
  /** Only older ones than this row. */
  before: number
}

/** Living domains, newest first. */
export function createLivingDomains(database: Database): (request: LivingDomainsRequest) => FoundDomain[] {
  const find = database.prepare<[number, string | null, string | null, number], DomainRow>(`
    select ${DOMAIN_COLUMNS}
    from domains
    where removed_at is null and domain_id < ? and (? is null or state in (select value from json_each(?)))
    order by domain_id desc
    limit +?`)
  const toFound = createRowReader(database)
  return ({ states, limit, before }) => {
    const wanted = states === null ? null : JSON.stringify(states)
    return find.all(before, wanted, wanted, limit).map(toFound)
  }
}

function createRowReader(database: Database): (row: DomainRow) => FoundDomain {
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
  const insert = database.prepare(`
    insert into domains
      (name, state, return_path, tracking_domain, tracking_opens, tracking_clicks, allow_subdomains, ip_pool,
      created_at, verified_at, last_checked_at, next_check_at, failing_since, failed_checks, degraded_at, checks)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
  return (domain) => {
    const { lastInsertRowid } = insert.run(
      domain.name,
      domain.state,
      domain.returnPath,
      domain.trackingDomain,
      Number(domain.tracking.opens),
      Number(domain.tracking.clicks),
      Number(domain.allowSubdomains),
      domain.ipPool,
      domain.createdAt,
      domain.verifiedAt,
      domain.lastCheckedAt,
      domain.nextCheckAt,
      domain.failingSince,
      domain.failedChecks,
      domain.degradedAt,
      JSON.stringify(domain.checks),
    )
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

/** A sending domain's own host of tracked links once a check found its record right, or null. */
export function createFindTrackingHost(database: Database): (domain: string) => string | null {
  const find = database
    .prepare<[string, string], string>(
      `
      select tracking_domain
      from domains
      where domain_id = ${SENDING_ROW} and exists (
        select 1
        from json_each(domains.checks)
        where value ->> 'purpose' = 'tracking' and value ->> 'status' = 'verified')`,
    )
    .pluck()
  return (domain) => find.get(domain, domain) ?? null
}
