/**
 * Whether a backup is whole: unpacked into a folder, every file as its manifest says, the database opened and checked.
 * A snapshot (`pre-migration-….db`) is taken as well, or what a restore moved aside: a database alone. Throws
 * BackupError, with a sentence.
 */
import { closeSync, copyFileSync, existsSync, lstatSync, openSync, readSync, statSync, type Stats } from 'node:fs'
import { join } from 'node:path'
import Sqlite from 'better-sqlite3'
import { errorCode, errorText } from '../../../base/errors.ts'
import { DATABASE, describeFile, readManifest, unpackArchive } from '../../backup-archive.ts'
import { BackupError, type BackupManifest } from '../../records/backup-records.ts'
import { brokenInvariants, countRows, integrityProblems } from './check-database.ts'
import { schemaVersion, SCHEMA_VERSION } from '../engine/migrate.ts'
import { freeBytesIn } from '../engine/snapshot.ts'

export interface VerifiedBackup {
  /** null: a database alone. Without counts it holds the configuration alone, of the schema 0. */
  manifest: BackupManifest | null
  schema: number
  /** Unix milliseconds: everything that was answered before is in it. */
  mark: number
  databaseBytes: number
}

export type VerifyStage = 'unpacking' | 'comparing' | 'checking'

const MAGIC = 'SQLite format 3\0'
const SPARE_BYTES = 64 * 1_024 * 1_024

/** `folder`: empty, for what is unpacked; `sternpost.db` is in it afterwards. */
export function verifyBackup(file: string, folder: string, onStage: (stage: VerifyStage) => void): VerifiedBackup {
  requireSpace(file, folder)
  onStage('unpacking')
  const manifest = isDatabase(file) ? null : readManifest(file)
  const copy = join(folder, DATABASE)
  if (manifest === null) {
    copyFileSync(file, copy)
    // Of a server that was killed: what it committed last stands there.
    if (existsSync(`${file}-wal`)) copyFileSync(`${file}-wal`, `${copy}-wal`)
  } else {
    unpackArchive(file, folder)
    onStage('comparing')
    compareFiles(file, manifest, folder)
  }
  const mark = manifest === null ? changedAt(file) : Date.parse(manifest.mark)
  if (manifest?.counts === null) return { manifest, schema: 0, mark, databaseBytes: 0 }
  onStage('checking')
  const schema = checkCopy(file, copy, manifest)
  return { manifest, schema, mark: Math.floor(mark), databaseBytes: statSync(copy).size }
}

/** With its log, which is moved into the file only now and then. */
function changedAt(file: string): number {
  const log = statSync(`${file}-wal`, { throwIfNoEntry: false })
  return Math.max(statSync(file).mtimeMs, log?.mtimeMs ?? 0)
}

function requireSpace(file: string, folder: string): void {
  const [needed, free] = [factsOfBackup(file).size + SPARE_BYTES, freeBytesIn(folder)]
  if (free < needed) throw new BackupError(`${needed} bytes are needed in ${folder}, ${free} are free`)
}

/** Throws BackupError where there is no such file. */
export function factsOfBackup(file: string): Stats {
  let facts: Stats
  try {
    facts = statSync(file)
  } catch (thrown) {
    const problem = errorCode(thrown) === 'ENOENT' ? 'there is no such file' : errorText(thrown)
    throw new BackupError(`${file}: ${problem}`, { cause: thrown })
  }
  if (facts.isDirectory()) throw new BackupError(`${file} is a folder; name the file of a backup in it`)
  return facts
}

function isDatabase(file: string): boolean {
  const start = Buffer.alloc(MAGIC.length)
  const descriptor = openSync(file, 'r')
  try {
    readSync(descriptor, start)
  } finally {
    closeSync(descriptor)
  }
  return start.toString('latin1') === MAGIC
}

function compareFiles(file: string, { files }: BackupManifest, folder: string): void {
  for (const [name, expected] of Object.entries(files)) {
    const path = join(folder, name)
    // A link could lead to a file that was not in it.
    if (!lstatSync(path).isFile()) throw new BackupError(`${file} is no backup of Sternpost: ${name} in it is no file`)
    const found = describeFile(path)
    if (found.bytes !== expected.bytes || found.sha256 !== expected.sha256) {
      throw new BackupError(`${file} is damaged: ${name} in it is not what was written (SHA-256)`)
    }
  }
}

/** Returns the schema version. */
function checkCopy(file: string, copy: string, manifest: BackupManifest | null): number {
  let database: Sqlite.Database | undefined
  try {
    database = new Sqlite(copy, { readonly: true, fileMustExist: true })
    const schema = schemaVersion(database)
    // Rows of other schemas are not known here; the migration looks at them.
    const problems = [...integrityProblems(database), ...(schema === SCHEMA_VERSION ? brokenInvariants(database) : [])]
    const [problem] = problems
    if (problem !== undefined) throw new BackupError(`${file} cannot be used: ${problem}`)
    const counts = schema === SCHEMA_VERSION && manifest !== null ? countRows(database) : null
    if (counts !== null && JSON.stringify(counts) !== JSON.stringify(manifest?.counts)) {
      throw new BackupError(`${file} is damaged: it holds other numbers of rows than its manifest says`)
    }
    return schema
  } catch (thrown) {
    if (thrown instanceof BackupError) throw thrown
    throw new BackupError(`${file} cannot be used: ${errorText(thrown)}`, { cause: thrown })
  } finally {
    database?.close()
  }
}
