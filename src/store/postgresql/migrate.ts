/**
 * Brings the schema to the version this program knows: each migration in one transaction with its number, by one node at
 * a time. Throws ProcessExit: 78 for a newer schema and 74 for a database that was emptied, both before anything is
 * written, 78 for a migration that failed, 75 where somebody else holds a table.
 */
import { readFileSync } from 'node:fs'
import { errorText, EXIT, ProcessExit, ServiceError } from '../../base/errors.ts'
import { hadData, toBeginAnew } from '../made-mark.ts'
import { ServerRefused, type BlockingWire } from './blocking-wire.ts'
import { askOnce } from './postgres-database.ts'

/** In order; the position + 1 is the schema version. A migration is never edited after its release. */
const MIGRATIONS = [
  '0001-initial.sql',
  '0002-nodes.sql',
  '0003-readable-json.sql',
  '0004-compressed-bodies.sql',
  '0005-quicker-json.sql',
  '0006-order-proofs.sql',
] as const

/** The schema this program writes. */
export const SCHEMA_VERSION = MIGRATIONS.length

const FIND_TABLE = `select to_regclass('schema_version') is not null as exists`

// Of nodes that start together the first one migrates; another number than those of connection.ts.
const LOCK = 7_394_166_203
/**
 * A migration that waits for a table, as while a dump reads it, keeps other nodes waiting behind it: they are away after
 * 3 s. A vacuum gives way after 1 s.
 */
const LIMIT_WAIT = `select set_config('lock_timeout', '2s', true)`
/** SQLSTATE of a lock that was waited for too long. */
const IN_USE = '55P03'

/** `markFolder`: as of PostgresLocation. Returns the version. */
export function migrate(wire: BlockingWire, markFolder: string | undefined): number {
  askOnce(wire, `select pg_advisory_lock(${LOCK})`)
  const { exists } = askOnce(wire, FIND_TABLE)
  if (exists !== 1 && markFolder !== undefined) refuseEmptied(markFolder)
  const found = exists === 1 ? Number(askOnce(wire, 'select version from schema_version')['version'] ?? 0) : 0
  if (found > SCHEMA_VERSION) {
    throw new ProcessExit(
      EXIT.configuration,
      `the database has schema version ${found}, this program knows versions up to ${SCHEMA_VERSION}: install the ` +
        'newer Sternpost that wrote it, or go back to a dump of before (systemd/README.md "PostgreSQL")',
    )
  }
  for (const [index, name] of MIGRATIONS.entries()) if (index >= found) apply(wire, index + 1, name)
  askOnce(wire, `select pg_advisory_unlock(${LOCK})`)
  return SCHEMA_VERSION
}

/** The data is elsewhere: in a dump, in the database that was meant, or still in the file of SQLite. */
function refuseEmptied(folder: string): void {
  if (!hadData(folder)) return
  const ways = 'restore it, correct storage.url or search_path, bring it from SQLite (sternpost migrate --to postgres)'
  const sentence = `there was data, and the database that storage.url names is empty: ${ways}, or ${toBeginAnew(folder)}`
  throw new ProcessExit(EXIT.disk, sentence)
}

function apply(wire: BlockingWire, version: number, name: string): void {
  const statements = readFileSync(new URL(`./migrations/${name}`, import.meta.url), 'utf8')
  try {
    // As one text without parameters: the server runs it in a transaction of its own.
    askOnce(wire, `${LIMIT_WAIT};\n${statements};\nupdate schema_version set version = ${version}`)
  } catch (cause) {
    if (cause instanceof ServerRefused && cause.reason === IN_USE) throw inUse(name, cause)
    // A server that did not answer may do so at the next start.
    if (cause instanceof ServiceError) throw cause
    throw new ProcessExit(EXIT.configuration, `the migration ${name} failed: ${errorText(cause)}`, { cause })
  }
}

function inUse(name: string, cause: Error): ProcessExit {
  const sentence = `the migration ${name} needs a table that another session holds, as pg_dump does; nothing was changed`
  return new ProcessExit(EXIT.tryAgain, `${sentence}. Start again when that is over`, { cause })
}
