/**
 * Whether a database is sound: SQLite's own check, and what must hold between its rows whatever happens. Reads
 * everything, so it belongs into a thread or a process of its own. Each problem is a sentence.
 */
import type { Database } from 'better-sqlite3'
import type { BackupCounts } from '../../records/backup-records.ts'

const MOST_PROBLEMS = 20
/** What breaks an invariant, and the query that counts such rows. */
const INVARIANTS: Record<string, string> = {
  'messages are final without the time of it, or have one and wait': `
    select count(*) from messages
    where (state in ('waiting', 'sending')) <> (final_at is null)`,
  'messages are under way, and nobody holds them': `select count(*) from messages where state = 'sending' and (lease_epoch is null or lease_until is null)`,
  'messages are held by a process that has not been yet': `
    select count(*) from messages
    where state = 'sending' and lease_epoch > (select value from meta where name = 'epoch')`,
  'messages have lost their content': `select count(*) from messages where content_id not in (select content_id from contents)`,
  'contents of messages that wait have lost their bytes': `
    select count(*) from contents
    where content_id in (select content_id from messages where state in ('waiting', 'sending'))
      and coalesce(html_bytes, 0) + coalesce(text_bytes, 0) + coalesce(raw_bytes, 0) > (
        select coalesce(sum(length(bytes)), 0) from content_parts
        where part_key between contents.content_id * 4096 and contents.content_id * 4096 + 4095)`,
  'messages are on a route that is not there': `select count(*) from messages where route_id not in (select route_id from routes)`,
  'messages bounced without a reason': `select count(*) from messages where state = 'bounced' and seq not in (select message_seq from bounces)`,
  'messages have no line of their acceptance': `
    select count(*) from messages
    where seq not in (select message_seq from events where kind = 'email.accepted' and message_seq is not null)`,
  'webhook deliveries have ended without the time of it, or have one and wait': `select count(*) from webhook_deliveries where (state = 'pending') <> (ended_at is null)`,
  'warmup days have granted more than their cap': 'select count(*) from warmup_days where granted > cap',
  'domains have two active DKIM keys of one algorithm': `
    select count(*) from (
      select domain_id from dkim_keys where role = 'active' group by domain_id, algorithm having count(*) > 1
    )`,
}

/** What SQLite says of the file: an empty list for a sound one. */
export function integrityProblems(database: Database): string[] {
  const rows = database.pragma(`integrity_check(${MOST_PROBLEMS})`) as { integrity_check: string }[]
  const damage = rows.map(({ integrity_check: text }) => text).filter((text) => text !== 'ok')
  if (damage.length > 0) return damage.map((text) => `the file is damaged: ${text}`)
  const orphans = database.pragma('foreign_key_check') as { table: string; parent: string }[]
  return orphans
    .slice(0, MOST_PROBLEMS)
    .map(({ table, parent }) => `a row of ${table} names one of ${parent} that is not there`)
}

/** Of a database of the present schema. */
export function brokenInvariants(database: Database): string[] {
  return Object.entries(INVARIANTS).flatMap(([sentence, query]) => {
    const count = database.prepare<[], number>(query).pluck().get() ?? 0
    return count === 0 ? [] : [`${count} ${sentence}`]
  })
}

const COUNTED: Record<keyof BackupCounts, string> = {
  messages: 'select count(*) from messages',
  undelivered: `select count(*) from messages where state in ('waiting', 'sending')`,
  domains: 'select count(*) from domains where removed_at is null',
  api_keys: 'select count(*) from api_keys where revoked_at is null',
  webhook_endpoints: 'select count(*) from webhook_endpoints where removed_at is null',
  suppressions: 'select count(*) from suppressions',
  idempotency_keys: 'select count(*) from idempotency_keys',
}

/** Of a database of the present schema. */
/** Private keys of ACME: of accounts, certificates, and certificates that are ordered. All are sealed. */
export function countAcmeKeys(database: Database): number {
  const query = `select (select count(*) from acme_accounts) + (select count(sealed_key) + count(order_sealed_key) from certificates)`
  return database.prepare<[], number>(query).pluck().get() ?? 0
}

export function countRows(database: Database): BackupCounts {
  const counts = Object.entries(COUNTED).map(([name, query]) => [name, database.prepare(query).pluck().get()])
  return Object.fromEntries(counts) as BackupCounts
}
