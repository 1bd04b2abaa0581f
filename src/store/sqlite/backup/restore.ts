/**
 * Putting a backup in the place of the database (systemd/README.md "Restore").
 *
 * The server must be stopped: the database's lock is taken. The backup is unpacked, checked, migrated and made safe in
 * a folder beside the present database; only then is that one moved aside and the other one gets its name. Whatever
 * fails before leaves everything as it was. Throws BackupError, with a sentence, for a file that is not whole or not
 * ours; ProcessExit 75 while a server runs, 78 for a newer schema.
 */
import { existsSync, linkSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { CONFIGURATION, DATABASE } from '../../backup-archive.ts'
import type { BackupCounts } from '../../records/backup-records.ts'
import type { StoreLocation } from '../../store-location.ts'
import { countRows } from './check-database.ts'
import { lockDatabase, openDatabase } from '../engine/database.ts'
import { SCHEMA_VERSION } from '../engine/migrate.ts'
import { settleRestored, type RestoredState } from './restore-database.ts'
import { flush, ownAs } from '../engine/snapshot.ts'
import { verifyBackup, type VerifyStage } from './verify-backup.ts'

interface RestoreOptions {
  file: string
  /** Where the database is to be. */
  location: StoreLocation
  now: number
  /** Today's warmup allowance stays as the backup has it. */
  keepsAllowance: boolean
  onStage: (stage: VerifyStage | 'migrating' | 'placing') => void
}

export interface RestoreSummary extends RestoredState {
  /** Unix milliseconds. */
  mark: number
  fromSchema: number
  schema: number
  counts: BackupCounts
  /** Where the database is that was there before, or null. */
  movedTo: string | null
  /** Where the configuration of the backup was put, or null. */
  configuration: string | null
}

const FOLDER_MODE = 0o700
/** Folders in which a backup is made ready; what a killed restore left goes with the next one. */
const WORK_PREFIX = '.restore-'
/** A database in WAL mode is three files. */
const PARTS = ['', '-wal', '-shm']

export function restoreBackup({ file, location, now, keepsAllowance, onStage }: RestoreOptions): RestoreSummary {
  const { folder } = location
  mkdirSync(folder, { recursive: true, mode: FOLDER_MODE })
  const lock = lockDatabase(location)
  for (const name of readdirSync(folder)) {
    if (name.startsWith(WORK_PREFIX)) rmSync(join(folder, name), { recursive: true, force: true })
  }
  const work = mkdtempSync(join(folder, WORK_PREFIX))
  try {
    const { schema: fromSchema, mark } = verifyBackup(file, work, onStage)
    onStage('migrating')
    const database = openDatabase({ ...location, folder: work })
    const state = settleRestored(database.writer, { mark, now, keepsAllowance })
    const counts = countRows(database.writer)
    // Whole in one file, and on the disk.
    database.writer.pragma('wal_checkpoint(truncate)')
    database.close()
    onStage('placing')
    // 20261121T031700Z
    const stamp = new Date(now)
      .toISOString()
      .replace(/\.\d+Z$/, 'Z')
      .replace(/[-:]/g, '')
    const movedTo = moveAside(folder, `before-restore-${stamp}`)
    ownAs(join(work, DATABASE), folder)
    flush(join(work, DATABASE))
    renameSync(join(work, DATABASE), join(folder, DATABASE))
    const configuration = placeConfiguration(work, join(folder, `restored-config-${stamp}`))
    flush(folder)
    return { ...state, mark, fromSchema, schema: SCHEMA_VERSION, counts, movedTo, configuration }
  } finally {
    rmSync(work, { recursive: true, force: true })
    lock.close()
  }
}

function moveAside(folder: string, name: string): string | null {
  if (!existsSync(join(folder, DATABASE))) return null
  const target = join(folder, name)
  mkdirSync(target, { mode: FOLDER_MODE })
  ownAs(target, folder)
  const names = PARTS.map((part) => `${DATABASE}${part}`).filter((part) => existsSync(join(folder, part)))
  // First all of them are there, then none is here: after a kill in between no database has lost its log.
  for (const part of names) linkSync(join(folder, part), join(target, part))
  flush(target)
  flush(folder)
  for (const part of names) rmSync(join(folder, part))
  return target
}

/** For the administrator to compare: the files in force are his. */
function placeConfiguration(work: string, target: string): string | null {
  const found = join(work, CONFIGURATION)
  if (!existsSync(found)) return null
  renameSync(found, target)
  ownAs(target, join(target, '..'))
  return target
}
