/**
 * What commands do to a database whose server is stopped, beside restoring: migrating and verifying. Both take the
 * database's lock and throw ProcessExit 75 while a server has it; 74 where there is no database.
 */
import { existsSync } from 'node:fs'
import Sqlite from 'better-sqlite3'
import { errorText, EXIT, ProcessExit } from '../../../base/errors.ts'
import type { BackupCounts } from '../../records/backup-records.ts'
import type { SqliteLocation } from '../../store-location.ts'
import { brokenInvariants, countRows, integrityProblems } from './check-database.ts'
import { databasePath, lockDatabase, openDatabase } from '../engine/database.ts'
import { migrationPlan, schemaVersion, SCHEMA_VERSION, type MigrationPlan } from '../engine/migrate.ts'

/**
 * Reads only, also beside a running server: which migrations there would be. 78 for a newer schema, 74 where the file
 * cannot be read: a reader of a log needs a little space as well.
 */
export function planMigration({ folder }: Pick<SqliteLocation, 'folder'>): MigrationPlan {
  const database = openReadOnly(folder)
  try {
    return migrationPlan(database, folder)
  } catch (thrown) {
    if (thrown instanceof ProcessExit) throw thrown
    const sentence = `${databasePath({ folder })} cannot be read: ${errorText(thrown)}; check the disk and its free space`
    throw new ProcessExit(EXIT.disk, sentence, { cause: thrown })
  } finally {
    database.close()
  }
}

/** Runs what is outstanding; returns what it was. */
export function migrateNow(location: SqliteLocation): MigrationPlan {
  const plan = planMigration(location)
  if (plan.migrations.length > 0) openDatabase(location).close()
  return plan
}

interface Verdict {
  schema: number
  problems: string[]
  /** null: of another schema. */
  counts: BackupCounts | null
}

export function verifyDatabase({ folder }: Pick<SqliteLocation, 'folder'>): Verdict {
  requireDatabase(folder)
  const lock = lockDatabase({ folder })
  try {
    const database = openReadOnly(folder)
    try {
      const schema = schemaVersion(database)
      const isKnown = schema === SCHEMA_VERSION
      const damage = integrityProblems(database)
      const problems = isKnown && damage.length === 0 ? brokenInvariants(database) : damage
      return { schema, problems, counts: isKnown && damage.length === 0 ? countRows(database) : null }
    } finally {
      database.close()
    }
  } catch (thrown) {
    if (thrown instanceof ProcessExit) throw thrown
    return { schema: 0, problems: [errorText(thrown)], counts: null }
  } finally {
    lock.close()
  }
}

function openReadOnly(folder: string): Sqlite.Database {
  requireDatabase(folder)
  return new Sqlite(databasePath({ folder }), { readonly: true, fileMustExist: true })
}

export function requireDatabase(folder: string): void {
  const path = databasePath({ folder })
  if (existsSync(path)) return
  throw new ProcessExit(EXIT.disk, `there is no database ${path}; is data_dir in sternpost.yaml right?`)
}
