/**
 * What is to be known of the server that holds the data, over a connection of its own that ends with the answer. Rejects
 * with what the driver says, or that a pooler stands in between. The driver is loaded where it is needed.
 */
export interface PostgresFacts {
  /** As `server_version_num`: 150018. */
  version: number
  versionText: string
  /** Of the tables, 0: there are none; and the newest that this program knows. */
  schema: number
  knownSchema: number
  /** It follows another server, and takes no writes. */
  isStandby: boolean
  /** Our sessions may change nothing, by a default of the server, the database or our role. */
  isReadOnly: boolean
  /** Settings that are off, and without which a commit is no promise. */
  unsafe: string[]
  /** That copy its log now, but for readers of rows; and which of them a commit waits for, empty: none. */
  standbys: number
  synchronousStandbyNames: string
  hasAutovacuum: boolean
  /** Of the tables that each message writes. */
  tables: { table: string; liveRows: number; deadRows: number }[]
  /** Of the oldest transaction that keeps dead rows, 0: there is none. */
  oldestSnapshotSeconds: number
  /** false: our role is not told what others do. */
  seesOthers: boolean
  /** Sessions of others with a lock that one of ours waits for, for so long. */
  blockers: { process: number; name: string | null; seconds: number }[]
  connections: number
  /** For roles like ours. */
  mostConnections: number
  /** Its clock is so far ahead of ours. */
  aheadMilliseconds: number
  /** Protocol, null: none. */
  tls: string | null
  /** We are on the same machine. */
  isHere: boolean
}

/** One document with the names of PostgresFacts. */
const FIND_FACTS = `
  select row_to_json(facts) from (select
    current_setting('server_version_num')::bigint as version, current_setting('server_version') as "versionText",
    pg_is_in_recovery() as "isStandby", current_setting('default_transaction_read_only') = 'on' as "isReadOnly",
    array(
      select name from pg_settings
      where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting in ('off', 'local', 'remote_write')
      order by name) as unsafe,
    (select count(*) from pg_stat_replication as standby
      where coalesce(state, 'streaming') = 'streaming' and not exists (
        select 1 from pg_replication_slots where active_pid = standby.pid and slot_type = 'logical')) as standbys,
    current_setting('synchronous_standby_names') as "synchronousStandbyNames",
    current_setting('autovacuum') = 'on' as "hasAutovacuum",
    (select coalesce(json_agg(each), '[]') from (
      select relname as "table", n_live_tup as "liveRows", n_dead_tup as "deadRows" from pg_stat_user_tables
      where schemaname = current_schema() and relname in ('messages', 'webhook_deliveries', 'events')
    ) as each) as tables,
    (select coalesce(max(extract(epoch from clock_timestamp() - since)), 0) from (
      select xact_start as since from pg_stat_activity
      where backend_xmin is not null and backend_type <> 'autovacuum worker' and pid <> pg_backend_pid()
      union all
      select prepared from pg_prepared_xacts) as transactions) as "oldestSnapshotSeconds",
    pg_has_role('pg_read_all_stats', 'usage') as "seesOthers",
    (select coalesce(json_agg(each), '[]') from (
      select blocker.pid as process, blocker.application_name as name,
        max(extract(epoch from clock_timestamp() - ours.query_start)) as seconds
      from pg_stat_activity as ours
      cross join unnest(pg_blocking_pids(ours.pid)) as blocking (pid)
      join pg_stat_activity as blocker on blocker.pid = blocking.pid
      where ours.datname = current_database() and ours.application_name like 'sternpost%'
        and ours.wait_event_type = 'Lock' and coalesce(blocker.application_name, '') not like 'sternpost%'
      group by blocker.pid, blocker.application_name
    ) as each) as blockers,
    (select sum(numbackends) from pg_stat_database) as connections,
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
      as "mostConnections",
    (select version from pg_stat_ssl where pid = pg_backend_pid() and ssl) as tls,
    coalesce(inet_client_addr() << '127.0.0.0/8' or inet_client_addr() = '::1', true) as "isHere"
  ) as facts`
const FIND_SCHEMA = 'select version from schema_version'
const FIND_TIME = 'select extract(epoch from clock_timestamp()) * 1000'

export async function findPostgresFacts(url: string): Promise<PostgresFacts> {
  const { openConnection } = await import('./connection.ts')
  const { SCHEMA_VERSION } = await import('./migrate.ts')
  const connection = await openConnection({ url, line: 'read', name: 'sternpost', mayBeStandby: true })
  try {
    const ask = async (text: string): Promise<unknown> => {
      const answer = await connection.ask({ statements: [{ name: '', text, values: [] }], isPatient: false })
      if (answer.kind === 'done') return answer.answers[0]?.rows[0]?.[0]
      throw new Error(answer.message)
    }
    const facts = JSON.parse(String(await ask(FIND_FACTS))) as Omit<
      PostgresFacts,
      'aheadMilliseconds' | 'schema' | 'knownSchema'
    >
    const schema = Number(await ask(FIND_SCHEMA).catch(() => 0))
    const before = Date.now()
    const time = Number(await ask(FIND_TIME))
    return { ...facts, schema, knownSchema: SCHEMA_VERSION, aheadMilliseconds: time - (before + Date.now()) / 2 }
  } finally {
    await connection.close()
  }
}
