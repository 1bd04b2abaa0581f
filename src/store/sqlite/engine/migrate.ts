/**
 * Brings the schema to the version this program knows: each migration in one transaction with its number (`pragma
 * user_version`), behind a snapshot. Throws ProcessExit: 78 for a newer schema, before anything is written, and for a
 * migration that failed; 74 without space for the snapshot or for the migration; 75 while somebody else writes, as from a
 * shell of SQLite.
 */
import { readFileSync } from 'node:fs'
import type { Database } from 'better-sqlite3'
import { errorCode, errorText, EXIT, ProcessExit } from '../../../base/errors.ts'
import { shellWord } from '../../../base/shell-word.ts'
import { passingExitCode } from '../../passing-failure.ts'
import { contentBytes, freeBytesIn, listSnapshots, makeSnapshot, requireSpace, type Snapshot } from './snapshot.ts'

/** In order; the position + 1 is the schema version. A migration is never edited after its release. */
const MIGRATIONS = [
  '0001-initial.sql',
  '0002-domain-keys.sql',
  '0003-contract.sql',
  '0004-reports.sql',
  '0005-engagement.sql',
  '0006-webhook-management.sql',
  '0007-queue.sql',
  '0008-dedicated-ips.sql',
  '0009-outbound-tls.sql',
  '0010-retention.sql',
  '0011-waiting-counts.sql',
  '0012-states-one-by-one.sql',
  '0013-claims.sql',
  '0014-reach.sql',
  '0015-reply-to.sql',
  '0016-authentication-reports.sql',
  '0017-statistics.sql',
  '0018-console.sql',
  '0019-subjects.sql',
  '0020-passkeys.sql',
  '0021-certificates.sql',
  '0022-nodes.sql',
  '0023-short-tls-policies.sql',
  '0024-order-proofs.sql',
] as const

// Between the first and the last migration of an upgrade.
const FIND_BEGINNING = `select value from meta where name = 'migrating_from'`
const NOTE_BEGINNING = `insert or replace into meta (name, value) values ('migrating_from', ?)`
const FORGET_BEGINNING = `delete from meta where name = 'migrating_from'`
/** The schema this program writes. */
export const SCHEMA_VERSION = MIGRATIONS.length
/** `pragma auto_vacuum` answers with a number; 2 is incremental. */
const INCREMENTAL = 2
/** A vacuum holds the database once more in a temporary file, and once more in the log. */
const VACUUM_SHARE = 2.2
/** By what `migrationPlan` estimates: a slow disk. */
const BYTES_PER_SECOND = 40 * 1_024 * 1_024

/** `folder`: where the database is. */
export function migrate(database: Database, folder: string): void {
  const found = schemaVersion(database)
  refuseNewer(database, found, folder)
  if (found === SCHEMA_VERSION) return forgetBeginning(database)
  const begun = findBeginning(database, folder, found)
  const snapshot = found === 0 ? null : (begun ?? makeSnapshot(database, folder, found, SCHEMA_VERSION))
  for (const [version, name] of outstanding(found)) {
    try {
      apply(database, { version, name, from: snapshot?.from ?? 0 })
    } catch (thrown) {
      const way = snapshot === null ? '' : `; the data as it was before is in ${snapshot.path}`
      // With one that may pass the next start goes on.
      const exitCode = passingExitCode(thrown) ?? EXIT.configuration
      throw new ProcessExit(exitCode, `the migration ${name} failed: ${errorText(thrown)}${way}`, { cause: thrown })
    }
  }
  if (snapshot !== null) makeIncremental(database, folder)
}

export interface MigrationPlan {
  found: number
  wanted: number
  /** Names of files. */
  migrations: string[]
  snapshotBytes: number
  seconds: number
}

/** What `migrate` would do. Throws as it does for a newer schema, and without space for the snapshot. */
export function migrationPlan(database: Database, folder: string): MigrationPlan {
  const found = schemaVersion(database)
  refuseNewer(database, found, folder)
  const migrations = outstanding(found).map(([, name]) => name)
  const hasSnapshot = migrations.length > 0 && found > 0 && findBeginning(database, folder, found) === null
  if (hasSnapshot) requireSpace(database, folder, found, SCHEMA_VERSION)
  const bytes = hasSnapshot ? contentBytes(database) : 0
  // The snapshot is one copy; migrations and the vacuum behind them write about as much again, twice.
  return { found, wanted: SCHEMA_VERSION, migrations, snapshotBytes: bytes, seconds: (3 * bytes) / BYTES_PER_SECOND }
}

export function schemaVersion(database: Database): number {
  return Number(database.pragma('user_version', { simple: true }))
}

function outstanding(found: number): (readonly [version: number, name: string])[] {
  return MIGRATIONS.map((name, index) => [index + 1, name] as const).slice(found)
}

interface Step {
  version: number
  name: string
  /** Schema that the upgrade began with; 0: nothing was there. */
  from: number
}

function apply(database: Database, { version, name, from }: Step): void {
  const statements = readFileSync(new URL(`../migrations/${name}`, import.meta.url), 'utf8')
  // Lets a migration exchange the text of the schema.
  database.unsafeMode(true)
  try {
    database
      .transaction(() => {
        database.exec(statements)
        database.pragma(`user_version = ${version}`)
        if (version === SCHEMA_VERSION) forgetBeginning(database)
        else if (from > 0) database.prepare(NOTE_BEGINNING).run(from)
      })
      .immediate()
  } finally {
    database.unsafeMode(false)
  }
}

/**
 * The snapshot of an upgrade that ended in the middle: a copy of what is there now would be of a schema that no program
 * has, and would drive out the one that leads back.
 */
function findBeginning(database: Database, folder: string, found: number): Snapshot | null {
  if (found === 0) return null
  const from = database.prepare<[], number>(FIND_BEGINNING).pluck().get()
  return listSnapshots(folder).find((snapshot) => snapshot.from === from && snapshot.to >= found) ?? null
}

/** Also one that a program left which knows no further than to here: what came since is in no snapshot. */
function forgetBeginning(database: Database): void {
  if (database.prepare(FIND_BEGINNING).get() !== undefined) database.exec(FORGET_BEGINNING)
}

function refuseNewer(database: Database, found: number, folder: string): void {
  if (found <= SCHEMA_VERSION) return
  const text = `${newerSchemaText(database.name, found)}${wayBack(listSnapshots(folder))}`
  throw new ProcessExit(EXIT.configuration, text)
}

export function newerSchemaText(file: string, found: number): string {
  return (
    `${file} has schema version ${found}, this program knows versions up to ${SCHEMA_VERSION}: ` +
    'install the newer Sternpost that wrote it'
  )
}

function wayBack(snapshots: readonly Snapshot[]): string {
  const usable = snapshots.find(({ from, to }) => from <= SCHEMA_VERSION && to > SCHEMA_VERSION)
  if (usable === undefined) return ', or restore a backup that was made before: sternpost restore FILE'
  const made = new Date(usable.madeAt).toISOString()
  return `, or go back to the snapshot of ${made}, without what came since: sternpost restore ${shellWord(usable.path)}`
}

/** Files of the first programs cannot give pages back; where there is no space to change that, they stay so. */
function makeIncremental(database: Database, folder: string): void {
  if (Number(database.pragma('auto_vacuum', { simple: true })) === INCREMENTAL) return
  if (freeBytesIn(folder) < VACUUM_SHARE * contentBytes(database)) return
  database.pragma('auto_vacuum = incremental')
  try {
    database.exec('vacuum')
  } catch (thrown) {
    // Its temporary file may stand on another disk.
    if (!errorCode(thrown).startsWith('SQLITE_FULL')) throw thrown
  }
}

/** For a file that is not there yet: it can give pages back from the start. Before anything is written. */
export function prepareNewFile(database: Database): void {
  if (Number(database.pragma('page_count', { simple: true })) === 0) database.pragma('auto_vacuum = incremental')
}
