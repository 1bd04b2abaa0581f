/**
 * One connection to PostgreSQL: statements go out in one flight (statement-flight.ts). Rejects with what the driver
 * says when it cannot be opened, or is not one that mail may be trusted to. A connection that fails once is ended.
 */
import { userInfo } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { findPrimary } from './primary.ts'
import { createFlights, readerOf } from './statement-flight.ts'
import {
  COMMIT,
  type StatementAnswer,
  type WireLine,
  type WireQuestion,
  type WireResult,
  type WireStatement,
} from './wire-messages.ts'

export interface Connection {
  /** What the last commit left in this database; null: there was none. Of the connection that writes. */
  lastCommit: number | null
  ask(question: Pick<WireQuestion, 'statements' | 'isPatient'>): Promise<WireResult>
  /** Milliseconds that the server has owed something and said nothing. */
  silence(): number
  /** Ends it at once: what is under way is lost. */
  drop(reason: string): void
  close(): Promise<void>
}

const CONNECT_TIMEOUT_MILLISECONDS = 5_000
const OPEN_TIMEOUT_MILLISECONDS = 15_000
const CLOSE_TIMEOUT_MILLISECONDS = 2_000
const types = { getTypeParser: readerOf } as unknown as pg.CustomTypesConfig
pg.defaults.user = ownName() ?? pg.defaults.user

/** Of whoever runs this, whom a Unix socket shows to the server; $USER may be missing, or another's (runuser, cron). */
function ownName(): string | undefined {
  try {
    return userInfo().username
  } catch {
    // No name belongs to its number, as in some containers.
    return undefined
  }
}

export interface ConnectionOptions {
  url: string
  /** See PostgresLocation. */
  nodeId?: string | undefined
  line: WireLine
  /** Of this process and no other: by it the server knows an earlier connection of ours. */
  name: string
  /** It is only looked at. */
  mayBeStandby?: boolean
  /** Told once, when it ended without `close`. */
  onLost?: (reason: string) => void
}

/** What the types of the driver leave out. */
type Stream = { destroy(): void; on(event: 'data', heard: () => void): void }
const streamOf = (client: pg.Client): Stream =>
  (client as unknown as { connection: { stream: Stream } }).connection.stream

export async function openConnection(options: ConnectionOptions): Promise<Connection> {
  const { url, nodeId, line, name, mayBeStandby = false, onLost = () => {} } = options
  const client = new pg.Client({
    connectionString: await findPrimary(url, CONNECT_TIMEOUT_MILLISECONDS, mayBeStandby),
    connectionTimeoutMillis: CONNECT_TIMEOUT_MILLISECONDS,
    keepAlive: true,
    application_name: name,
    pipeline: true,
    types,
  } as pg.ClientConfig)
  let state: 'opening' | 'open' | 'ended' = 'opening'
  const end = (reason: string): void => {
    const wasOpen = state === 'open'
    state = 'ended'
    streamOf(client).destroy()
    if (wasOpen) onLost(reason)
  }
  client.on('error', (error) => end(error.message))
  client.on('end', () => end('the server ended the connection'))
  const limit = setTimeout(() => end('it took too long'), OPEN_TIMEOUT_MILLISECONDS)
  let lastCommit: number | null = null
  try {
    await client.connect()
    await checkServer(client, { mayBeStandby, writes: line === 'write' })
    await client.query(SESSION)
    if (line === 'write') {
      await client.query(WRITING_SESSION)
      if (nodeId !== undefined) await client.query(SESSION_OF_NODE)
      await lockDatabase(client, name, nodeId)
      lastCommit = await findLastCommit(client, nodeId)
    }
  } catch (thrown) {
    end('')
    throw thrown
  } finally {
    clearTimeout(limit)
  }
  state = 'open'
  let owed = 0
  let heardAt = 0
  const hear = (): void => void (heardAt = performance.now())
  streamOf(client).on('data', hear)

  const fly = createFlights(client)

  async function send(statements: WireStatement[]): Promise<WireResult> {
    const [first] = statements
    try {
      const answers = first?.name === '' ? [await askUnprepared(client, first)] : await fly(statements)
      return { kind: 'done', answers }
    } catch (thrown) {
      const { code = '', message } = thrown as { code?: string; message: string }
      if (code === READ_ONLY) end(message)
      const isOver = thrown instanceof pg.DatabaseError && (code === READ_ONLY || (await endFailed(client, statements)))
      if (isOver) return { kind: 'failed', code, message }
      end(message)
      return { kind: 'lost', code, message }
    }
  }

  return {
    lastCommit,
    async ask({ statements, isPatient }) {
      if (isPatient) return send(statements)
      if (owed++ === 0) hear()
      return send(statements).finally(() => owed--)
    },
    silence: () => (owed === 0 ? 0 : performance.now() - heardAt),
    drop: end,
    async close() {
      state = 'ended'
      await Promise.race([client.end(), sleep(CLOSE_TIMEOUT_MILLISECONDS, undefined, { ref: false })])
      streamOf(client).destroy()
    },
  }
}

/**
 * How bad an error is the server says in its own language: what answers behind it was not ended by it. Where a commit was
 * left out, its transaction is undone; otherwise it goes on. false: the connection is lost.
 */
async function endFailed(client: pg.Client, statements: readonly WireStatement[]): Promise<boolean> {
  try {
    await client.query('')
    const isOpen = client.getTransactionStatus() !== 'I'
    if (isOpen && statements.at(-1)?.text === COMMIT) await client.query('rollback')
    return true
  } catch {
    return false
  }
}

/** Of a text of several statements, as migrations are, the answer is that of the last one. */
async function askUnprepared(client: pg.Client, { text, values }: WireStatement): Promise<StatementAnswer> {
  const result: unknown = await client.query<unknown[]>({ text, values, rowMode: 'array' })
  const last = (Array.isArray(result) ? result.at(-1) : result) as pg.QueryResult<unknown[]> | undefined
  const fields = last?.fields.map(({ name }) => name) ?? []
  return { fields, rows: last?.rows ?? [], count: last?.rowCount ?? 0 }
}

/**
 * Whatever the defaults of the server, the database and our role: values are written and read in one way, and no limit of
 * time is another's than ours (of them, newer versions have more). A commit returns when it is on the disk, and a client
 * that is gone, the machine with it, is noticed within half a minute, so that the next one need not wait for its lock.
 * Every statement has its index: plans that are made while tables are small must not read whole ones later, and none is
 * worth being compiled.
 */
const SESSION = `
  set synchronous_commit = on; set default_transaction_isolation = 'read committed'; set timezone = 'UTC';
  set bytea_output = 'hex'; set extra_float_digits = 1; set array_nulls = on; set standard_conforming_strings = on;
  set client_min_messages = 'warning'; set quote_all_identifiers = off;
  select set_config(name, '0', false) from pg_settings where name in ('statement_timeout', 'lock_timeout',
    'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout');
  set client_connection_check_interval = '2s';
  set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; set jit = off;
  set tcp_keepalives_idle = 10; set tcp_keepalives_interval = 5; set tcp_keepalives_count = 3`

/** What is written is asked in one way, whatever the values: a plan for each of them takes longer than they do. */
const WRITING_SESSION = 'set plan_cache_mode = force_generic_plan'
/**
 * A node that stands still in a transaction, or is cut off, keeps all others waiting: its session ends, and what it had
 * begun with it.
 */
const SESSION_OF_NODE = `set idle_in_transaction_session_timeout = '3s'; set tcp_user_timeout = '10s'`

/** A server that mail may not be trusted to. */
export const NOT_TRUSTED = 'not-trusted'
/** Another process holds the lock. */
export const TAKEN = 'taken'

/** SQLSTATE of a change in a session that may not make any: another one may, once that was set back. */
const READ_ONLY = '25006'

/**
 * A pooler that hands each transaction to another session breaks what is prepared, and locks. A standby takes no
 * changes, and may know less than was committed.
 */
async function checkServer(client: pg.Client, { mayBeStandby, writes }: Record<'mayBeStandby' | 'writes', boolean>) {
  const { processID } = client as unknown as { processID: number }
  const asked = `
    select pg_backend_pid() as process, pg_is_in_recovery() as standby,
      current_setting('default_transaction_read_only') = 'on' as "isReadOnly"`
  const { rows } = await client.query<{ process: number; standby: number; isReadOnly: number }>(asked)
  if (rows[0]?.standby === 1 && !mayBeStandby) throw new Error('the server is a standby, which takes no changes')
  if (rows[0]?.isReadOnly === 1 && writes) {
    throw new Error('default_transaction_read_only is on for our sessions: no change is taken')
  }
  if (rows[0]?.process === processID) return
  const problem = new Error('a pooler stands before the server: connect to the server itself')
  throw Object.assign(problem, { code: NOT_TRUSTED })
}

/** Of the databases of the server, by a number of ours; who begins to write takes the next one (`begin_writing`). */
const LOCK = 7_394_166_201
/** First half of the lock of a node; the second is made of its name. */
const NODE_LOCK = 739_416
const TRY_LOCK = `select pg_try_advisory_lock(${LOCK}) as taken`
const TRY_NODE_LOCK = `
  select pg_try_advisory_lock_shared(${LOCK}) and pg_try_advisory_lock(${NODE_LOCK}, hashtext($1)) as taken`
const END_EARLIER = `
  select pg_terminate_backend(locks.pid)
  from pg_locks as locks
  join pg_stat_activity as sessions on sessions.pid = locks.pid
  where locks.locktype = 'advisory' and sessions.datname = current_database() and sessions.application_name = $1
    and (locks.classid::bigint << 32 | locks.objid::bigint) = ${LOCK} and locks.pid <> pg_backend_pid()`
const LOCK_TRIES = 50
const LOCK_PAUSE_MILLISECONDS = 100

/**
 * One process works with a database, or one as each of its nodes. The session that held the lock has ended at the server
 * when another one gets it: what it had under way is committed by then, or never will be.
 */
async function lockDatabase(client: pg.Client, name: string, nodeId: string | undefined): Promise<void> {
  let isOurs = false
  for (let tries = 0; tries < LOCK_TRIES; tries += 1) {
    const { rows } = await (nodeId === undefined
      ? client.query<{ taken: number }>(TRY_LOCK)
      : client.query<{ taken: number }>(TRY_NODE_LOCK, [nodeId]))
    if (rows[0]?.taken === 1) return
    // A cut that the server has not noticed: nobody else ends it.
    isOurs = (await client.query(END_EARLIER, [name])).rows.length > 0
    await sleep(LOCK_PAUSE_MILLISECONDS)
  }
  if (isOurs) throw new Error('an earlier session of this process does not end at the server')
  const as = nodeId === undefined ? '' : ` as the node ${nodeId}`
  const problem = new Error(`another Sternpost works with this database${as}; stop it first`)
  throw Object.assign(problem, { code: TAKEN })
}

async function findLastCommit(client: pg.Client, nodeId = ALONE): Promise<number | null> {
  const asked = `select to_regclass('last_commits') as found`
  const { rows: tables } = await client.query<{ found: string | null }>(asked)
  if (tables[0]?.found === null) return null
  const { rows } = await client.query<{ number: number }>(FIND_COMMIT, [nodeId])
  return rows[0]?.number ?? null
}

/** The row of who is no node among others. */
export const ALONE = ''
/** What each commit of a node leaves (writing-database.ts). */
export const FIND_COMMIT = 'select number from last_commits where node_id = $1 order by number desc limit 1'
