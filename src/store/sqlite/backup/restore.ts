/**
 * Putting a backup in the place of the database of a stopped server (systemd/README.md "Restore"): made ready in a
 * folder beside it, so that whatever fails before the exchange leaves everything as it was. Throws BackupError, with a
 * sentence, for a file that is not whole or not ours; ProcessExit 75 while a server runs, 78 for a newer schema.
 */
import { existsSync, linkSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite, { type Database } from 'better-sqlite3'
import { CONFIGURATION, DATABASE, timeStamp } from '../../backup-archive.ts'
import { BackupError, type BackupCounts } from '../../records/backup-records.ts'
import type { SqliteLocation } from '../../store-location.ts'
import { countRows } from './check-database.ts'
import { lockDatabase, openDatabase } from '../engine/database.ts'
import { newerSchemaText, schemaVersion, SCHEMA_VERSION } from '../engine/migrate.ts'
import { flush, ownAs, snapshotSchemas } from '../engine/snapshot.ts'
import { verifyBackup, type VerifyStage } from './verify-backup.ts'
import { EXIT, ProcessExit } from '../../../base/errors.ts'
import { utcDay } from '../../../base/utc-day.ts'
import { HELD_UNTIL } from '../../records/queue-records.ts'
import { TOGETHER } from '../../verbs/ips/allowance.ts'
import { COUNT_HELD } from '../../verbs/queue/waiting-rows.ts'
import { createRevocationCopy } from '../../verbs/domains/api-keys.ts'
import { createSuppressionCopy } from '../../verbs/suppressions/suppressions.ts'
import { oneColumn } from '../../verbs/tools/statements.ts'

interface RestoreOptions {
  file: string
  /** Where the database is to be. */
  location: SqliteLocation
  now: number
  /** Today's warmup allowance stays as the backup has it. */
  keepsAllowance: boolean
  onStage: (stage: VerifyStage | 'migrating' | 'placing') => void
}

export interface RestoreSummary extends RestoredState, Carried {
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

/** What came over from the database that was there before; null: none was read. */
interface Carried {
  /** Entries of the suppression list. */
  newerSuppressions: number | null
  /** API keys that were revoked since. */
  newerRevocations: number | null
  /** Of the database that was there before; null: none, or it cannot be read. */
  presentSchema: number | null
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
    const { manifest, schema: fromSchema, mark } = verifyBackup(file, work, onStage)
    if (fromSchema > SCHEMA_VERSION) throw new ProcessExit(EXIT.configuration, newerSchemaText(file, fromSchema))
    if (manifest?.counts === null)
      throw new BackupError(`${file} holds the configuration alone: tar -xf ${file} config`)
    onStage('migrating')
    const database = openDatabase({ ...location, folder: work })
    const state = settleRestored(database.writer, { mark, now, keepsAllowance })
    const carried = carryWhatCameSince(database.writer, folder, work)
    const counts = countRows(database.writer)
    // Whole in one file, and on the disk.
    database.writer.pragma('wal_checkpoint(truncate)')
    database.close()
    onStage('placing')
    const stamp = timeStamp(now)
    const movedTo = placeDatabase(work, folder, `before-restore-${stamp}`)
    const configuration = placeConfiguration(work, freePlace(folder, `restored-config-${stamp}`))
    flush(folder)
    return { ...state, ...carried, mark, fromSchema, schema: SCHEMA_VERSION, counts, movedTo, configuration }
  } finally {
    rmSync(work, { recursive: true, force: true })
    lock.close()
  }
}

/** Linked into `work`, so that reading it leaves nothing beside it. */
const PRESENT = 'present.db'

/**
 * Nobody who complained, left a list or bounced since the backup is written to again: what their mail brought onto the
 * list of the present database comes onto the restored one. What somebody added there stays behind: a restore is also
 * the way back from a mistaken import. A key that was revoked since, perhaps because it leaked, opens nothing again: a
 * new one is made at once. Never throws for what is there.
 */
function carryWhatCameSince(writer: Database, folder: string, work: string): Carried {
  const carried: Carried = { newerSuppressions: null, newerRevocations: null, presentSchema: null }
  if (!existsSync(join(folder, DATABASE))) return carried
  let present: Database | undefined
  try {
    for (const part of databaseParts(folder)) {
      if (!part.endsWith('-shm')) linkSync(join(folder, part), join(work, part.replace(DATABASE, PRESENT)))
    }
    present = new Sqlite(join(work, PRESENT), { readonly: true, fileMustExist: true })
    carried.presentSchema = schemaVersion(present)
    if (carried.presentSchema !== SCHEMA_VERSION) return carried
    carried.newerRevocations = writer.transaction(createRevocationCopy(present, writer)).immediate()
    carried.newerSuppressions = writer.transaction(createSuppressionCopy(present, writer)).immediate()
  } catch {
    // It may be its damage for which a backup is restored, in whatever way that shows: what could be read has come over.
  } finally {
    present?.close()
  }
  return carried
}

/**
 * The schema that a file goes back to, by its name, when it is a snapshot that an upgrade to this program's schema or an
 * earlier one made: this program would bring it to its own again. Else null.
 */
export function schemaBeforeUpgrade(file: string): number | null {
  const schemas = snapshotSchemas(file)
  return schemas !== null && schemas.from < SCHEMA_VERSION && schemas.to <= SCHEMA_VERSION ? schemas.from : null
}

/** Whole and closed in `work`; the one in `folder` goes into a folder of this name. Returns that one, or null. */
export function placeDatabase(work: string, folder: string, name: string): string | null {
  const movedTo = moveAside(folder, name)
  ownAs(join(work, DATABASE), folder)
  flush(join(work, DATABASE))
  renameSync(join(work, DATABASE), join(folder, DATABASE))
  flush(folder)
  return movedTo
}

/** Names of what is there of a database. A log alone counts: SQLite would play it into the next database beside it. */
export function databaseParts(folder: string): string[] {
  return PARTS.map((part) => `${DATABASE}${part}`).filter((part) => existsSync(join(folder, part)))
}

/** What was put aside within the same second stays. */
function freePlace(folder: string, name: string): string {
  const place = join(folder, name)
  let free = place
  for (let count = 2; existsSync(free); count += 1) free = `${place}-${count}`
  return free
}

function moveAside(folder: string, name: string): string | null {
  const names = databaseParts(folder)
  if (names.length === 0) return null
  const target = freePlace(folder, name)
  mkdirSync(target, { mode: FOLDER_MODE })
  ownAs(target, folder)
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

interface RestoredState {
  held: number
  /** Of these, by an operator when the copy was made. */
  heldBefore: number
  /** Webhook deliveries that are due: receivers know repeated ones. */
  webhookDeliveries: number
  /** IPs whose warmup allowance of today counts as used. */
  warmingIps: number
}

/**
 * What a restored database must not do by itself (systemd/README.md "Restore"): its undelivered messages may have been
 * sent since the copy was made, so they are held, and marked as possible duplicates; the allowance of today's warmup may
 * have been used, so it counts as used. Sessions of the console and links to it may have been ended since, so they are.
 *
 *   waiting, sending -> waiting, held   until `sternpost queue release` or `drop`
 *
 * A message whose own time is still to come cannot have been sent. The lifetime of what is held stands still between the
 * moment of the copy and the restore: otherwise an old copy would bounce it all at once.
 */
function settleRestored(
  database: Database,
  { mark, now, keepsAllowance }: Pick<RestoreOptions, 'now' | 'keepsAllowance'> & { mark: number },
): RestoredState {
  const hold = database.prepare<[number, number, number]>(`
    update messages
    set state = 'waiting', next_at = ?, waiting_for = 'held', expires_at = expires_at + ?,
      possible_duplicate = max(possible_duplicate, coalesce(
        (select send_at <= ? from contents where contents.content_id = messages.content_id), 1)),
      dot_sent = 0, lease_epoch = null, claim = null, lease_until = null
    where state in ('waiting', 'sending')`)
  const countDeliveries = oneColumn(database)<[], number>(`
    select count(*) from webhook_deliveries where state = 'pending'`)
  return database
    .transaction((): RestoredState => {
      for (const table of ['sessions', 'login_links']) database.exec(`delete from ${table}`)
      return {
        heldBefore: oneColumn(database)<[], number>(COUNT_HELD).get() ?? 0,
        held: hold.run(HELD_UNTIL, Math.max(0, now - mark), now).changes,
        webhookDeliveries: countDeliveries.get() ?? 0,
        warmingIps: keepsAllowance ? 0 : useUpAllowance(database, utcDay(now)),
      }
    })
    .immediate()
}

/**
 * The pace of the day is used for ever: no grant conforms, whatever cap a start or a change of the stage sets. Nothing is
 * counted that was not sent.
 */
function useUpAllowance(database: Database, day: string): number {
  // A suspended one may be resumed today.
  const findIps = oneColumn(database)<[], string>(`
    select ip from egress_ips
    where state in ('warming', 'paused') or former_state in ('warming', 'paused')`)
  const close = database.prepare<[string, string, string, number]>(`
    insert into warmup_days (ip, day, isp, cap, granted, arrival_at, interval_milliseconds)
    values (?, ?, ?, 0, 0, ?, 0)
    on conflict (ip, day, isp) do update set arrival_at = excluded.arrival_at`)
  const ips = findIps.all()
  for (const ip of ips) close.run(ip, day, TOGETHER, HELD_UNTIL)
  return ips.length
}
