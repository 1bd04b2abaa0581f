/**
 * Filled databases as earlier programs left them: each version is the one before it with its migration, and rows in
 * every table that is new in it.
 */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import Sqlite, { type Database } from 'better-sqlite3'
import { databasePath } from '../../src/store/sqlite/engine/database.ts'
import type { SqliteLocation } from '../../src/store/store-location.ts'
import { NOW } from './store-samples.ts'

const MIGRATIONS = new URL('../../src/store/sqlite/migrations/', import.meta.url)
export const MIGRATION_FILES: readonly string[] = readdirSync(MIGRATIONS).sort()
const DAY = '2026-11-20'

/** What is written once a database has this version. */
const ROWS: Record<number, string> = {
  1: `
    update meta set value = 3 where name = 'epoch';
    insert into pools (name) values ('default'), ('bulk');
    insert into lanes (domain, stream) values ('zeta.com', 'transactional'), ('zeta.com', 'bulk');
    insert into contents (content_id, from_address, subject, has_variables, html_bytes) values
      (1, 'a@zeta.com', 'One', 0, 5), (2, 'a@zeta.com', 'Many {{n}}', 1, 5);
    insert into content_parts values (4096, x'68656c6c6f'), (8192, x'776f726c64');
    insert into messages (id, state, pool_id, lane_id, content_id, recipient, recipient_domain, next_at, expires_at,
      created_at, attempts, sticky_ip, final_at)
    select randomblob(16), state, 1, 1 + (n % 2), 1 + (n % 2), 'r' || n || '@example.com', 'example.com', ${NOW},
      ${NOW} + 90000000, ${NOW} - 1000, state <> 'waiting', null, iif(state = 'waiting', null, ${NOW})
    from (
      with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 200)
      select n, iif(n % 4 = 0, 'waiting', iif(n % 4 = 1, 'bounced', 'delivered')) as state from numbers);
    insert into message_data (message_seq, to_name, variables) select seq, 'Ada', '{"n":1}' from messages where seq % 2;
    insert into bounces (message_seq, type, category, code, description)
      select seq, 'hard', 'invalid_recipient', '5.1.1', '550 no' from messages where state = 'bounced';
    insert into attempts (message_seq, at, result, duration_milliseconds, ip, host, stage, reply)
      select seq, ${NOW}, state, 9, '127.0.0.11', 'mx.example.com', 'dot', '250 ok' from messages where final_at > 0;
    insert into events (id, message_seq, kind, at, body)
      select randomblob(16), seq, 'email.accepted', created_at, null from messages;
    insert into events (id, message_seq, kind, at, body)
      select randomblob(16), seq, 'email.delivered', ${NOW}, '{}' from messages where state = 'delivered';
    insert into webhook_endpoints (id, url, events, status, sealed_secret, created_at)
      values (randomblob(16), 'https://x.test/', '["*"]', 'enabled', x'01', ${NOW});
    insert into webhook_deliveries (id, endpoint_id, event_seq, state, next_at)
      select randomblob(16), 1, event_seq, iif(event_seq % 2, 'pending', 'succeeded'), ${NOW}
      from events where body is not null;
    insert into webhook_attempts (delivery_seq, at, duration_milliseconds, status, answer)
      select delivery_seq, ${NOW}, 3, 200, '' from webhook_deliveries where state = 'succeeded';
    insert into api_keys (id, hash, name, mode, scopes, domains, allowed_ips, prefix, last4, created_at)
      values (randomblob(16), randomblob(32), 'first', 'live', '["admin"]', '[]', '[]', 'sk_live_', 'wxyz', ${NOW});
    insert into domains (name, state, selector, public_key, sealed_private_key, return_path, created_at, checks)
      values ('zeta.com', 'verified', 'ps1', 'MIIZ', x'090807', 'rp.zeta.com', ${NOW}, '[]');`,
  3: `
    insert into content_tags values ('kind', 'order', 2);
    update contents set tags = '{"kind":"order"}' where content_id = 2;
    insert into batches values (2, randomblob(16), null, ${NOW}, 1);
    insert into idempotency_keys (api_key_id, key, fingerprint, created_at, status, body)
      values (x'', 'k', x'00', ${NOW}, 200, '{}');
    insert into suppressions (id, address, is_test, scope, reason, created_at)
      values (randomblob(16), 'no@example.com', 0, 'all', 'complaint', ${NOW});
    insert into transcripts (message_seq, at, result, dialogue) select message_seq, at, result, '> EHLO' from attempts;
    insert into complaints values (2, ${NOW}, 'abuse');
    insert into engagement_counts (message_seq, opens) values (2, 3);`,
  4: `
    insert into reports values (2, 'complaint', ${NOW});
    insert into unmatched_reports (at, kind, sender, recipient, remote_address, bytes)
      values (${NOW}, 'bounce', '', 'x@rp.zeta.com', '127.0.0.1', x'00');`,
  5: `insert into engagement (message_seq, kind, link, machine, first_at, hits) values (2, 'open', 0, 0, ${NOW}, 3);`,
  7: `
    insert into routes (name, isp) values ('google', 'gmail');
    insert into domain_routes select 'example.com', route_id from routes where name = 'google';`,
  8: `
    insert into egress_ips (ip, state, actor, since, days_held, days_at_target, paused_at, version)
      values ('127.0.0.11', 'warming', 'cli', ${NOW}, 0, 0, '[]', 1);
    insert into warmup_days (ip, day, isp, cap, granted, arrival_at, interval_milliseconds)
      values ('127.0.0.11', '${DAY}', '*', 50, 20, 0, 1);
    insert into ip_slots (ip, slot_at, granted) values ('127.0.0.11', ${NOW}, 20);
    insert into ip_hours (ip, hour, isp, messages) values ('127.0.0.11', ${NOW}, '*', 20);
    insert into ip_days (ip, day, isp, messages) values ('127.0.0.11', '${DAY}', '*', 20);
    insert into warmup_audit (ip, at, actor, action, from_state, to_state, figures)
      values ('127.0.0.11', ${NOW}, 'cli', 'start', 'cold', 'warming', '{}');
    insert into path_states values ('127.0.0.11', 'google', '{}', ${NOW});`,
  9: `
    insert into sts_policies values ('example.com', '1', 'enforce', '["*"]', ${NOW}, ${NOW});
    insert into plain_memories values ('127.0.0.11', 'mx.example.com', ${NOW}, 'why');
    insert into tls_results values ('${DAY}', 'example.com', 'sts', 'mx', '127.0.0.11', 'success', '[]', 4),
      ('${DAY}', 'example.com', 'tlsa', 'mx', '127.0.0.11', 'success', '["3 0 0 ' || hex(randomblob(2000)) || '"]', 5);
    insert into tls_reports values ('${DAY}', 'example.org');`,
  10: `
    insert into kept_links values (1, '[]');
    insert into traces (id, content_id, lane_id, recipient, ended_at)
      values (randomblob(16), 1, 1, 'gone@example.com', ${NOW});
    insert into database_days values ('${DAY}', 4096);`,
  11: `insert into waiting_counts (counts) values ('{"hours":[],"days":[],"slots":[],"sent":[]}');`,
  16: `
    insert into authentication_reports values ('zeta.com', '${DAY}', 'dmarc', 'example.net', '1', ${NOW});
    insert into dmarc_sources values ('zeta.com', '${DAY}', 'example.net', '127.0.0.11', 2, 2, 2, 2, 0, 0);
    insert into tls_sessions values ('zeta.com', '${DAY}', 'success', 3);`,
  17: `insert into statistics (is_test, dimension, hour, name, domain) values (0, 'domain', ${NOW}, 'zeta.com', 'zeta.com');`,
  18: `
    insert into people values (x'01', 'ada', 'owner', ${NOW});
    insert into login_links values (x'02', x'01', ${NOW}, null);
    insert into sessions values (x'03', x'04', x'01', null, '127.0.0.1', 'curl', ${NOW}, ${NOW}, ${NOW});
    insert into audit (at, actor, act, facts, request_id) values (${NOW}, 'ada', 'message canceled', '{}', 'req_1');`,
  19: `insert into subjects (rowid, subject) values (1, 'One'), (2, 'Many');`,
  20: `insert into passkeys values ('id', x'01', 'mail.zeta.com', x'05', 1, 'a browser', ${NOW}, null);`,
  21: `
    insert into acme_accounts values ('https://acme.example.net/directory', x'06', null);
    insert into certificates (name, names, failures, next_try_at) values ('mail.zeta.com', '[]', 0, ${NOW});`,
}

/** Rows by table, before anything is migrated. */
export function writeOldDatabase(location: Pick<SqliteLocation, 'folder'>, version: number): Record<string, number> {
  mkdirSync(location.folder, { recursive: true })
  const database = new Sqlite(databasePath(location)).unsafeMode()
  for (const [index, file] of MIGRATION_FILES.slice(0, version).entries()) {
    database.exec(readFileSync(new URL(file, MIGRATIONS), 'utf8'))
    database.exec(ROWS[index + 1] ?? '')
  }
  database.pragma('journal_mode = wal')
  database.pragma(`user_version = ${version}`)
  const counts = tableCounts(database)
  database.close()
  return counts
}

export function tableCounts(database: Database): Record<string, number> {
  const tables = database
    .prepare<[], string>(
      `
      select name from sqlite_schema
      where type = 'table' and name not like 'sqlite_%' and name not like 'subjects\\_%' escape '\\'
      order by name`,
    )
    .pluck()
    .all()
  return Object.fromEntries(
    tables.map((table) => [table, database.prepare<[], number>(`select count(*) from ${table}`).pluck().get() ?? 0]),
  )
}

/** What must be the same before and after: who is in which state, and every byte of content. */
export function tableSums(location: Pick<SqliteLocation, 'folder'>): unknown {
  const database = new Sqlite(databasePath(location), { readonly: true })
  const sums = {
    messages: database.prepare('select state, group_concat(hex(id)) as ids from messages group by state').all(),
    bytes: database.prepare('select part_key, hex(bytes) as bytes from content_parts order by part_key').all(),
    subjects: database.prepare('select content_id, subject from contents order by content_id').all(),
  }
  database.close()
  return sums
}
