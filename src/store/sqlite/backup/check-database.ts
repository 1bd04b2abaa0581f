/**
 * Whether a database is sound: SQLite's own check, and what must hold between its rows whatever happens. Reads
 * everything, so it belongs into a thread or a process of its own. Each problem is a sentence.
 */
import type { Database } from 'better-sqlite3'
import type { BackupCounts } from '../../records/backup-records.ts'

const MOST_PROBLEMS = 20

interface Invariant {
  /** What is counted is what breaks it. */
  query: string
  sentence: (count: number) => string
}

/** Each query counts rows that must not be. */
const INVARIANTS: readonly Invariant[] = [
  {
    query: `
      select count(*) from messages
      where (state in ('waiting', 'sending')) <> (final_at is null)`,
    sentence: (count) => `${count} messages are final without the time of it, or have one and wait`,
  },
  {
    query: `select count(*) from messages where state = 'sending' and (lease_epoch is null or lease_until is null)`,
    sentence: (count) => `${count} messages are under way, and nobody holds them`,
  },
  {
    query: `
      select count(*) from messages
      where state = 'sending' and lease_epoch > (select value from meta where name = 'epoch')`,
    sentence: (count) => `${count} messages are held by a process that has not been yet`,
  },
  {
    query: `select count(*) from messages where content_id not in (select content_id from contents)`,
    sentence: (count) => `${count} messages have lost their content`,
  },
  {
    query: `
      select count(*) from contents
      where content_id in (select content_id from messages where state in ('waiting', 'sending'))
        and coalesce(html_bytes, 0) + coalesce(text_bytes, 0) + coalesce(raw_bytes, 0) > (
          select coalesce(sum(length(bytes)), 0) from content_parts
          where part_key between contents.content_id * 4096 and contents.content_id * 4096 + 4095)`,
    sentence: (count) => `${count} contents of messages that wait have lost their bytes`,
  },
  {
    query: `select count(*) from messages where route_id not in (select route_id from routes)`,
    sentence: (count) => `${count} messages are on a route that is not there`,
  },
  {
    query: `select count(*) from messages where state = 'bounced' and seq not in (select message_seq from bounces)`,
    sentence: (count) => `${count} messages bounced without a reason`,
  },
  {
    query: `
      select count(*) from messages
      where seq not in (select message_seq from events where kind = 'email.accepted' and message_seq is not null)`,
    sentence: (count) => `${count} messages have no line of their acceptance`,
  },
  {
    query: `select count(*) from webhook_deliveries where (state = 'pending') <> (ended_at is null)`,
    sentence: (count) => `${count} webhook deliveries have ended without the time of it, or have one and wait`,
  },
  {
    query: 'select count(*) from warmup_days where granted > cap',
    sentence: (count) => `${count} warmup days have granted more than their cap`,
  },
  {
    query: `
      select count(*) from (
        select domain_id from dkim_keys where role = 'active' group by domain_id, algorithm having count(*) > 1
      )`,
    sentence: (count) => `${count} domains have two active DKIM keys of one algorithm`,
  },
]

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
  return INVARIANTS.flatMap(({ query, sentence }) => {
    const count = database.prepare<[], number>(query).pluck().get() ?? 0
    return count === 0 ? [] : [sentence(count)]
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
export function countRows(database: Database): BackupCounts {
  const count = (name: keyof BackupCounts): number => database.prepare<[], number>(COUNTED[name]).pluck().get() ?? 0
  return {
    messages: count('messages'),
    undelivered: count('undelivered'),
    domains: count('domains'),
    api_keys: count('api_keys'),
    webhook_endpoints: count('webhook_endpoints'),
    suppressions: count('suppressions'),
    idempotency_keys: count('idempotency_keys'),
  }
}
