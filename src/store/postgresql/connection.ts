/**
 * One connection to PostgreSQL: statements go out in one flight and are answered in order. Rejects with what the driver
 * says when it cannot be opened, or is not one that mail may be trusted to.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import type { StatementAnswer, WireAnswer, WireLine, WireRequest } from './wire-messages.ts'

export interface Connection {
  /** Of the server, that serves it. */
  process: number
  ask(request: Pick<Extract<WireRequest, { kind: 'ask' }>, 'id' | 'statements'>): Promise<WireAnswer>
  close(): Promise<void>
}

const CONNECT_TIMEOUT_MILLISECONDS = 5_000
/** A server that says nothing for so long is lost: the network may have swallowed it. */
const ANSWER_TIMEOUT_MILLISECONDS = 20_000
/** `pg_type`: how text that the server sends becomes a value. */
const READERS: Readonly<Record<number, (text: string) => unknown>> = {
  16: (text) => (text === 't' ? 1 : 0),
  17: (text) => Buffer.from(text.slice(2), 'hex'),
  20: Number,
  21: Number,
  23: Number,
  700: Number,
  701: Number,
  1700: Number,
}
const asText = (text: string): unknown => text
const types = { getTypeParser: (type: number) => READERS[type] ?? asText } as unknown as pg.CustomTypesConfig

interface ConnectionOptions {
  url: string
  line: WireLine
  /** Of the connection that this one takes the place of. */
  lastProcess: number | null
  /** Told once, when it ended without `close`. */
  onLost: (reason: string) => void
}

export async function openConnection({ url, line, lastProcess, onLost }: ConnectionOptions): Promise<Connection> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MILLISECONDS,
    query_timeout: ANSWER_TIMEOUT_MILLISECONDS,
    keepAlive: true,
    application_name: 'sternpost',
    pipeline: true,
    types,
  } as pg.ClientConfig)
  let state: 'opening' | 'open' | 'ended' = 'opening'
  const end = (reason: string): void => {
    const wasOpen = state === 'open'
    state = 'ended'
    if (wasOpen) onLost(reason)
  }
  client.on('error', (error) => end(error.message))
  client.on('end', () => end('the server ended the connection'))
  const { connection } = client as unknown as { connection: { stream: { cork(): void; uncork(): void } } }
  let processID: number
  try {
    await client.connect()
    processID = await readProcess(client)
    await client.query(SESSION)
    if (line === 'write') await lockDatabase(client, lastProcess)
  } catch (thrown) {
    client.end().catch(() => {})
    throw thrown
  }
  state = 'open'

  return {
    process: processID,
    async ask({ id, statements }) {
      connection.stream.cork()
      const asked = statements.map(({ name, text, values }) =>
        client.query<unknown[]>({ name, text, values, rowMode: 'array' }),
      )
      connection.stream.uncork()
      const settled = await Promise.allSettled(asked)
      const failed = settled.find((each) => each.status === 'rejected')
      if (failed !== undefined) {
        const { code, message, severity } = failed.reason as { code?: string; message: string; severity?: string }
        // What has no severity was not said by the server.
        if (severity === undefined) return { id, kind: 'lost', message, process: processID }
        const isFatal = severity === 'FATAL' || severity === 'PANIC'
        return isFatal
          ? { id, kind: 'lost', message, process: processID }
          : { id, kind: 'failed', code: code ?? '', message, process: processID }
      }
      const answers = settled.flatMap((each) => (each.status === 'rejected' ? [] : [answerOf(each.value)]))
      return { id, kind: 'done', answers, process: processID }
    },
    async close() {
      state = 'ended'
      await client.end()
    },
  }
}

/** Of a text of several statements, as migrations are, the last one. */
function answerOf(result: pg.QueryResult<unknown[]> | pg.QueryResult<unknown[]>[]): StatementAnswer {
  const last = Array.isArray(result) ? result.at(-1) : result
  const fields = last?.fields.map(({ name }) => name) ?? []
  return { fields, rows: last?.rows ?? [], count: last?.rowCount ?? 0, command: last?.command ?? '' }
}

/** A commit returns when it is on the disk, whatever the server's default. */
const SESSION = `set synchronous_commit = on; set timezone = 'UTC'; set client_min_messages = 'warning'`

/** A pooler that hands each transaction to another session breaks what is prepared, and locks. */
async function readProcess(client: pg.Client): Promise<number> {
  const { processID } = client as unknown as { processID: number }
  const { rows } = await client.query<{ process: number }>('select pg_backend_pid() as process')
  if (rows[0]?.process === processID) return processID
  throw new Error('a pooler stands before the server: connect to the server itself')
}

/** Of the databases of the server, by a number of ours. */
const LOCK = 7_394_166_201
const TRY_LOCK = `select pg_try_advisory_lock(${LOCK}) as taken`
const END_PROCESS = `
  select pg_terminate_backend(pid)
  from pg_locks
  where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
    and (classid::bigint << 32 | objid::bigint) = ${LOCK} and pid = $1`
const LOCK_TRIES = 20
const LOCK_PAUSE_MILLISECONDS = 100

/**
 * One process works with a database. The session that held the lock has ended at the server when another one gets it:
 * what it had under way is committed by then, or never will be.
 */
async function lockDatabase(client: pg.Client, lastProcess: number | null): Promise<void> {
  for (let tries = 0; tries < LOCK_TRIES; tries += 1) {
    const { rows } = await client.query<{ taken: number }>(TRY_LOCK)
    if (rows[0]?.taken === 1) return
    // A cut that the server has not noticed: nobody else ends it.
    if (lastProcess !== null) await client.query(END_PROCESS, [lastProcess])
    await sleep(LOCK_PAUSE_MILLISECONDS)
  }
  throw new Error('another Sternpost works with this database; stop it first')
}
