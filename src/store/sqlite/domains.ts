/**
 * Sending domains and what the last check of their DNS records found.
 */
import type { Database } from 'better-sqlite3'
import type { DomainCheckResult, DomainRecord, RecordCheck } from '../records.ts'

type DomainRow = Omit<DomainRecord, 'checks'> & { checks: string }

const DOMAIN_COLUMNS = `
  name, state, selector, public_key as publicKey, sealed_private_key as sealedPrivateKey, return_path as returnPath,
  ip_pool as ipPool, created_at as createdAt, verified_at as verifiedAt, last_checked_at as lastCheckedAt, checks`

export function createFindDomain(database: Database): (name: string) => DomainRecord | null {
  const find = database.prepare<[string], DomainRow>(`select ${DOMAIN_COLUMNS} from domains where name = ?`)
  return (name) => {
    const row = find.get(name)
    return row === undefined ? null : domainOf(row)
  }
}

export function createAddDomain(
  database: Database,
): (domain: DomainRecord) => { domain: DomainRecord; isNew: boolean } {
  const find = createFindDomain(database)
  const add = database.prepare(`
    insert into domains
      (name, state, selector, public_key, sealed_private_key, return_path, ip_pool, created_at, verified_at,
      last_checked_at, checks)
    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
  return (domain) => {
    const known = find(domain.name)
    if (known !== null) return { domain: known, isNew: false }
    add.run(
      domain.name, domain.state, domain.selector, domain.publicKey, domain.sealedPrivateKey, domain.returnPath,
      domain.ipPool, domain.createdAt, domain.verifiedAt, domain.lastCheckedAt, JSON.stringify(domain.checks),
    )
    return { domain, isNew: true }
  }
}

export function createRecordDomainCheck(database: Database): (result: DomainCheckResult) => DomainRecord | null {
  const find = createFindDomain(database)
  const update = database.prepare<[string, number | null, number, string, string]>(`
    update domains
    set state = ?, verified_at = ?, last_checked_at = ?, checks = ?
    where name = ?`)
  return ({ name, now, state, checks }) => {
    const known = find(name)
    if (known === null) return null
    const becameVerified = state === 'verified' && known.state !== 'verified'
    update.run(state, becameVerified ? now : known.verifiedAt, now, JSON.stringify(checks), name)
    return find(name)
  }
}

const domainOf = (row: DomainRow): DomainRecord => ({ ...row, checks: JSON.parse(row.checks) as RecordCheck[] })
