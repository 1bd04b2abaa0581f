/** SQLite as the thread of the store works with it. Throws ProcessExit as `openDatabase` does. */
import { createPlaceWatch, NOT_IN_PLACE } from '../../base/database-place.ts'
import { ServiceError } from '../../base/errors.ts'
import type { OpenEngine } from '../engine/open-engine.ts'
import type { SqliteLocation } from '../store-location.ts'
import { createCheckpoint } from './engine/checkpoint.ts'
import { isDamage, openDatabase, readDurability, type OpenDatabase } from './engine/database.ts'
import { createDatabaseSize, createGiveBackPages } from './engine/file-size.ts'
import { schemaVersion } from './engine/migrate.ts'

const MOST_WORK_MILLISECONDS = 5

export function openSqliteEngine(location: SqliteLocation): OpenEngine {
  return createSqliteEngine(openDatabase(location), location)
}

export function createSqliteEngine(
  { writer, reader, close }: OpenDatabase,
  { folder, walMaxBytes }: Pick<SqliteLocation, 'folder' | 'walMaxBytes'>,
): OpenEngine {
  const { journalMode: journal_mode, synchronous } = readDurability(writer)
  const isInPlace = createPlaceWatch(writer.name)
  return {
    writer,
    reader,
    databaseSize: createDatabaseSize(reader),
    giveBackPages: createGiveBackPages(writer),
    requireInPlace() {
      if (!isInPlace()) throw new ServiceError('unavailable', NOT_IN_PLACE, { headers: { 'Retry-After': '60' } })
    },
    afterGroup: createCheckpoint(writer, walMaxBytes),
    isDamage,
    isLate: () => false,
    wasCommitted: () => undefined,
    mostWorkMilliseconds: MOST_WORK_MILLISECONDS,
    facts: { folder, journal_mode, synchronous, schema_version: schemaVersion(writer) },
    close,
  }
}
