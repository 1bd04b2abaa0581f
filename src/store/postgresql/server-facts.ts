/**
 * What is to be known of the server that holds the data, over a connection of its own that ends with the answer. Rejects
 * with what the driver says, or that a pooler stands in between.
 */
import { openConnection } from './connection.ts'

export interface PostgresFacts {
  /** As `server_version_num`: 150018. */
  version: number
  versionText: string
  /** It follows another server, and takes no writes. */
  isStandby: boolean
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

const FIND_SERVER = `
  select
    current_setting('server_version_num')::bigint, current_setting('server_version'), pg_is_in_recovery(),
    array_to_string(array(
      select name from pg_settings
      where name in ('fsync', 'full_page_writes', 'synchronous_commit') and setting in ('off', 'local', 'remote_write')
      order by name), ' '),
    (select count(*) from pg_stat_replication as standby
      where coalesce(state, 'streaming') = 'streaming' and not exists (
        select 1 from pg_replication_slots where active_pid = standby.pid and slot_type = 'logical')),
    current_setting('synchronous_standby_names'), current_setting('autovacuum') = 'on',
    (select coalesce(max(extract(epoch from clock_timestamp() - since)), 0) from (
      select xact_start as since from pg_stat_activity
      where backend_xmin is not null and backend_type <> 'autovacuum worker' and pid <> pg_backend_pid()
      union all
      select prepared from pg_prepared_xacts) as transactions),
    pg_has_role('pg_read_all_stats', 'usage'),
    (select sum(numbackends) from pg_stat_database),
    current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint,
    (select version from pg_stat_ssl where pid = pg_backend_pid() and ssl),
    coalesce(inet_client_addr() << '127.0.0.0/8' or inet_client_addr() = '::1', true)`
const FIND_TABLES = `
  select relname, n_live_tup, n_dead_tup from pg_stat_user_tables
  where schemaname = current_schema() and relname in ('messages', 'webhook_deliveries', 'events')`
const FIND_TIME = 'select extract(epoch from clock_timestamp()) * 1000'

export async function findPostgresFacts(url: string): Promise<PostgresFacts> {
  const connection = await openConnection({
    url,
    line: 'read',
    name: 'sternpost',
    mayBeStandby: true,
    onLost: () => {},
  })
  try {
    const ask = async (text: string): Promise<unknown[][]> => {
      const answer = await connection.ask({ statements: [{ name: '', text, values: [] }], isPatient: false })
      if (answer.kind === 'done') return answer.answers[0]?.rows ?? []
      throw new Error(answer.message)
    }
    const [row = []] = await ask(FIND_SERVER)
    const tables = await ask(FIND_TABLES)
    const before = Date.now()
    const [[time] = []] = await ask(FIND_TIME)
    const aheadMilliseconds = Number(time) - (before + Date.now()) / 2
    const [
      version,
      versionText,
      isStandby,
      unsafe,
      standbys,
      names,
      vacuum,
      oldest,
      seesOthers,
      used,
      most,
      tls,
      here,
    ] = row
    return {
      version: Number(version),
      versionText: String(versionText),
      isStandby: isStandby === 1,
      unsafe: String(unsafe).split(' ').filter(Boolean),
      standbys: Number(standbys),
      synchronousStandbyNames: String(names),
      hasAutovacuum: vacuum === 1,
      tables: tables.map(([table, live, dead]) => ({
        table: String(table),
        liveRows: Number(live),
        deadRows: Number(dead),
      })),
      oldestSnapshotSeconds: Number(oldest),
      seesOthers: seesOthers === 1,
      connections: Number(used),
      mostConnections: Number(most),
      aheadMilliseconds,
      tls: typeof tls === 'string' ? tls : null,
      isHere: here === 1,
    }
  } finally {
    await connection.close()
  }
}
