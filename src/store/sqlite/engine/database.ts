/**
 * Opens the database file: one connection that writes, and connections that only read. A commit that returned survives
 * a power cut, or the program does not start. A second process is kept out by an exclusive transaction on a file of its
 * own, so a kill frees it.
 *
 * Throws ProcessExit: 75 when another process holds the database, 78 when its schema is newer, a migration failed, or the
 * folder or what is in it is not ours to write into, 74 when it cannot be read or written, was here and is gone, or a snapshot before a migration has no space.
 */
import { accessSync, constants, existsSync, mkdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import Sqlite, { type Database } from 'better-sqlite3'
import { errorCode, errorText, EXIT, ProcessExit } from '../../../base/errors.ts'
import { hadData, markPath, noteData, toBeginAnew } from '../../made-mark.ts'
import type { SqliteLocation } from '../../store-location.ts'
import { addAddressFunctions } from './address-functions.ts'
import { migrate, prepareNewFile } from './migrate.ts'
import { ownAs } from './snapshot.ts'
import { isBehindFile, unwritableText } from './unwritable.ts'

export interface OpenDatabase {
  /** The only connection that writes. */
  writer: Database
  /** Sees what was committed; answers lookups. */
  reader: Database
  close(): void
}

/** Only a shell or a backup tool beside us can hold a lock; after this long the verb fails. */
const BUSY_TIMEOUT_MILLISECONDS = 5_000
/** The database and all mail in it: for the service's user alone. */
const FOLDER_MODE = 0o700
/** What they read they seldom read again, and the system has the file in its memory. */
const READER_CACHE_KIBIBYTES = 2_048
/** `pragma synchronous` answers with a number; 2 is FULL. */
const SYNCHRONOUS_FULL = 2

export function databasePath(location: Pick<SqliteLocation, 'folder'>): string {
  return join(location.folder, 'sternpost.db')
}

function lockPath({ folder }: Pick<SqliteLocation, 'folder'>): string {
  return join(folder, 'sternpost.lock')
}

export function openDatabase(location: SqliteLocation): OpenDatabase {
  const path = databasePath(location)
  try {
    makeWritable(location.folder)
    const lock = lockDatabase(location)
    try {
      return openLocked(path, location, lock)
    } catch (thrown) {
      lock.close()
      throw thrown
    }
  } catch (thrown) {
    if (thrown instanceof ProcessExit) throw thrown
    const reason = [errorCode(thrown), errorText(thrown)].filter((text) => text !== '').join(': ')
    const sentence = `the database ${path} cannot be opened: ${reason}; check the disk, or restore a backup`
    throw new ProcessExit(EXIT.disk, sentence, { cause: thrown })
  }
}

/** One that cannot be made may be on a disk that comes later. */
function makeWritable(folder: string): void {
  let exitCode: number = EXIT.disk
  try {
    mkdirSync(folder, { recursive: true, mode: FOLDER_MODE })
    exitCode = EXIT.configuration
    accessSync(folder, constants.W_OK | constants.X_OK)
    // What another user made in it would be told as a damaged disk.
    for (const file of [databasePath({ folder }), `${databasePath({ folder })}-wal`, lockPath({ folder })]) {
      if (existsSync(file)) accessSync(file, constants.R_OK | constants.W_OK)
    }
  } catch (cause) {
    const text = unwritableText(folder, cause)
    if (text === null) throw cause
    throw new ProcessExit(isBehindFile(cause) ? EXIT.configuration : exitCode, `data_dir: ${text}`, { cause })
  }
}

function openLocked(path: string, location: SqliteLocation, lock: Database): OpenDatabase {
  refuseVanished(path, location.folder)
  const writer = openWriter(path, location)
  const reader = openReader(location)
  if (!hadData(location.folder)) {
    noteData(location.folder)
    ownAs(markPath(location.folder), location.folder)
  }
  return {
    writer,
    reader,
    close() {
      reader.close()
      writer.close()
      lock.close()
    },
  }
}

/** A database that was here and is not is no new one: its mail would be forgotten without a word. */
function refuseVanished(path: string, folder: string): void {
  const bytes = statSync(path, { throwIfNoEntry: false })?.size ?? 0
  if (bytes > 0 || !hadData(folder)) return
  const ways =
    'put it back, restore a backup (sternpost restore FILE), bring it from PostgreSQL (sternpost migrate --to sqlite)'
  const sentence = `there was data, and the database ${path} is not there: ${ways}, or ${toBeginAnew(folder)}`
  throw new ProcessExit(EXIT.disk, sentence)
}

/** A connection that cannot write, for lookups here and for content in delivery threads. */
export function openReader(location: SqliteLocation): Database {
  const path = databasePath(location)
  const reader = new Sqlite(path, { readonly: true, fileMustExist: true, timeout: BUSY_TIMEOUT_MILLISECONDS })
  reader.pragma(`cache_size = ${-READER_CACHE_KIBIBYTES}`)
  return reader
}

/** Keeps every other process out until it is closed. */
export function lockDatabase(location: Pick<SqliteLocation, 'folder'>): Database {
  const path = lockPath(location)
  const lock = new Sqlite(path, { timeout: 0 })
  try {
    ownAs(path, location.folder)
    lock.exec('begin exclusive')
    return lock
  } catch (thrown) {
    lock.close()
    if (!errorCode(thrown).startsWith('SQLITE_BUSY')) throw thrown
    const sentence = `another Sternpost is running with the data in ${location.folder}; stop it first`
    throw new ProcessExit(EXIT.tryAgain, sentence, { cause: thrown })
  }
}

function openWriter(path: string, location: SqliteLocation): Database {
  const writer = new Sqlite(path, { timeout: BUSY_TIMEOUT_MILLISECONDS })
  try {
    prepareWriter(writer, location)
    return writer
  } catch (thrown) {
    writer.close()
    throw thrown
  }
}

function prepareWriter(writer: Database, location: SqliteLocation): void {
  prepareNewFile(writer)
  writer.pragma('journal_mode = wal')
  writer.pragma('synchronous = full')
  writer.pragma('foreign_keys = on')
  // Negative: KiB instead of pages. Not too large: SQLite walks through all of it at the end of nearly each transaction
  // (a page that was split out of order makes it believe that the file got shorter); the rest is in the system's cache.
  writer.pragma(`cache_size = ${-Math.floor(location.pageCacheBytes / 1_024)}`)
  // Checkpoints are taken between groups, where they delay no commit.
  writer.pragma('wal_autocheckpoint = 0')
  const durability = readDurability(writer)
  if (durability.synchronous !== SYNCHRONOUS_FULL || durability.journalMode !== 'wal') {
    throw new Error(`journal_mode is ${durability.journalMode}, synchronous is ${durability.synchronous}`)
  }
  migrate(writer, location.folder)
  addAddressFunctions(writer, location.erasureKey)
}

interface Durability {
  journalMode: string
  /** 2 is FULL: a commit waits until its bytes are on the disk. */
  synchronous: number
}

/** What this connection really does, read back from SQLite. */
export function readDurability(database: Database): Durability {
  return {
    journalMode: String(database.pragma('journal_mode', { simple: true })),
    synchronous: Number(database.pragma('synchronous', { simple: true })),
  }
}

/** The file is not a sound database any more: going on could only make it worse. */
export function isDamage(thrown: unknown): boolean {
  const code = errorCode(thrown)
  return code.startsWith('SQLITE_CORRUPT') || code === 'SQLITE_NOTADB'
}
