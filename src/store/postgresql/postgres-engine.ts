/**
 * PostgreSQL as the thread of the store works with it. Throws ProcessExit: 75 when the server does not answer or another
 * process works with this database, 78 when it is not one that mail may be trusted to, or its schema is newer, 74 when it
 * is empty where there was data, or that there is some cannot be noted. The mail of an older copy is settled before
 * anything else is asked (older-copy.ts).
 */
import type { MessagePort } from 'node:worker_threads'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import type { OpenEngine } from '../engine/open-engine.ts'
import { notedCommit, openCommitNotes, type CommitNotes } from '../made-mark.ts'
import type { PostgresLocation } from '../store-location.ts'
import {
  DatabaseAway,
  DatabaseChanged,
  isOfStatement,
  openBlockingWire,
  StatementFailed,
  type BlockingWire,
} from './blocking-wire.ts'
import { ALONE, NOT_TRUSTED } from './connection.ts'
import { migrate } from './migrate.ts'
import { holdCopy, settleOlderCopy, type HeldCopy } from './older-copy.ts'
import { askOnce, createPostgresDatabase } from './postgres-database.ts'
import { createRowNumbers } from './row-numbers.ts'
import { createStatementQueue } from './statement-queue.ts'
import { createWritingDatabase } from './writing-database.ts'

/** Most of it is waiting for the server. */
const MOST_WORK_MILLISECONDS = 20
const OLDEST_VERSION = 150_000
const FIND_FACTS = `
  select current_setting('server_version_num')::bigint as number, current_setting('server_encoding') as encoding,
    current_setting('server_version') as server_version, current_setting('fsync') as fsync,
    current_setting('synchronous_commit') as synchronous_commit`
const FIND_SIZE = 'select pg_database_size(current_database())'

/** The row that its commits are noted in. One that was dead has begun anew: nobody else works as this node. */
const ENTER_NODE = `
  insert into nodes (node_id, epoch, state, started_at, beat_at) values ($1, 0, 'stopped', 0, 0)
  on conflict (node_id) do update set state = 'stopped' where nodes.state = 'dead'`

// SQLSTATE of a login that is refused, of a database that does not exist, and of a right that is missing: only a person changes that.
const MISTAKE = new RegExp(`^(?:28|3D000|42501|${NOT_TRUSTED})`)

/** `notes`: where EngineNotes go; null: nowhere. */
export function openPostgresEngine(location: PostgresLocation, notes: MessagePort | null): OpenEngine {
  const { markFolder, nodeId = ALONE } = location
  return withWire(location, notes, (wire, facts) => {
    const warning = markFolder === undefined ? null : settleOlderCopy(wire, notedCommit(markFolder))
    const commitNotes = markFolder === undefined ? null : openCommitNotes(markFolder, nodeId)
    return { ...createEngine(wire, location, facts, commitNotes), warning }
  })
}

/** Of a database that PostgreSQL's own tools have restored, and nobody works with. Times are Unix milliseconds. */
export function holdMailOfCopy(location: PostgresLocation, copiedAt: number, now: number): HeldCopy {
  return withWire(location, null, (wire) => {
    const held = holdCopy(wire, copiedAt, now)
    wire.close()
    return held
  })
}

/** The database is there, in this program's schema. A wire whose work failed is closed. */
function withWire<Result>(
  location: PostgresLocation,
  notes: MessagePort | null,
  work: (wire: BlockingWire, facts: OpenEngine['facts']) => Result,
): Result {
  const wire = openBlockingWire(location, notes)
  try {
    const facts = checkServer(wire)
    const schema_version = migrate(wire, location.markFolder)
    return work(wire, { ...facts, schema_version })
  } catch (thrown) {
    wire.close()
    if (!(thrown instanceof DatabaseAway)) throw thrown
    const sentence = `the database cannot be opened: ${errorText(thrown.cause)}`
    const exitCode = MISTAKE.test(thrown.reason) ? EXIT.configuration : EXIT.tryAgain
    throw new ProcessExit(exitCode, sentence, { cause: thrown })
  }
}

function createEngine(
  wire: BlockingWire,
  { nodeId = ALONE, erasureKey }: PostgresLocation,
  facts: OpenEngine['facts'],
  commitNotes: CommitNotes | null,
): OpenEngine {
  askOnce(wire, ENTER_NODE, [nodeId])
  const rowNumbers = createRowNumbers(wire)
  const writer = createWritingDatabase({
    wire,
    rowNumbers,
    nodeId,
    erasureKey,
    onCommit: (number) => commitNotes?.note(number),
  })
  const reader = createPostgresDatabase({ queue: createStatementQueue(wire, 'read'), rowNumbers, erasureKey })
  const findSize = reader.prepare<[], Record<string, number>>(FIND_SIZE).pluck()
  return {
    writer,
    reader,
    databaseSize() {
      const bytes = Number(findSize.get() ?? 0)
      return { fileBytes: bytes, usedBytes: bytes, logBytes: 0 }
    },
    // Vacuum is the server's.
    giveBackPages: () => 0,
    requireInPlace: () => {},
    afterGroup: () => {},
    isDamage: (thrown) =>
      thrown instanceof DatabaseChanged || (thrown instanceof StatementFailed && DAMAGE.has(thrown.code)),
    isLate: isOfStatement,
    wasCommitted: writer.wasCommitted,
    mostWorkMilliseconds: MOST_WORK_MILLISECONDS,
    facts,
    close() {
      wire.close()
      commitNotes?.close()
    },
  }
}

/** SQLSTATE of data_corrupted and index_corrupted. */
const DAMAGE = new Set(['XX001', 'XX002'])

function checkServer(wire: BlockingWire): OpenEngine['facts'] {
  const { number, encoding, ...facts } = askOnce(wire, FIND_FACTS) as OpenEngine['facts']
  wire.ask('read', [{ name: '', text: 'select 1', values: [] }], true)
  const refuse = (sentence: string): never => {
    throw new ProcessExit(EXIT.configuration, `storage.url: ${sentence}`)
  }
  if (Number(number) < OLDEST_VERSION) refuse(`PostgreSQL ${facts['server_version']} is too old. Fix: 15 or newer`)
  if (encoding !== 'UTF8') refuse(`the database is kept in ${encoding}. Fix: create it with encoding UTF8`)
  return { engine: 'postgres', ...facts }
}
