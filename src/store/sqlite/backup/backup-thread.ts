/**
 * Entry of the thread that writes a backup (systemd/README.md "Backup"): copies the database by `VACUUM INTO` while
 * mail flows, checks the copy, packs it with the configuration and a manifest. The archive gets its name when it is
 * whole and on the disk. Posts each stage, then the manifest or what went wrong; leaves nothing else behind.
 */
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { join } from 'node:path'
import { parentPort, workerData } from 'node:worker_threads'
import Sqlite from 'better-sqlite3'
import { errorCode, errorText } from '../../../base/errors.ts'
import { packageVersion } from '../../../base/package-version.ts'
import { archiveName, CONFIGURATION, DATABASE, describeFile, MANIFEST, packArchive } from '../../backup-archive.ts'
import { BackupError, type BackupManifest, type BackupStage } from '../../records/backup-records.ts'
import { countAcmeKeys, countRows, integrityProblems } from './check-database.ts'
import { schemaVersion } from '../engine/migrate.ts'
import { contentBytes, freeBytesIn, settle } from '../engine/snapshot.ts'
import { unwritableText } from '../engine/unwritable.ts'

export interface BackupThreadData {
  /** The database that is running; null: it is elsewhere. */
  databaseFile: string | null
  /** Where the archive goes. */
  folder: string
  /** Made, used and removed here. */
  workFolder: string
  /** null: there is none. */
  configurationFolder: string | null
  /** Bytes that stay free on the disk of the database. */
  keptFreeBytes: number
  now: number
}

export type BackupThreadMessage =
  | { kind: 'stage'; stage: BackupStage; totalBytes: number }
  | { kind: 'written'; path: string; bytes: number; manifest: BackupManifest }
  | { kind: 'failed'; sentence: string }

/** Left on any other disk beside the copy and the archive. */
const SPARE_BYTES = 64 * 1_024 * 1_024
/** For the service's user alone. */
const FOLDER_MODE = 0o700
const LEFT_OUT = ['the master key, and every other file that a secret of the configuration is read from']
const NO_FOLDER = 'the configuration, which has no folder here: variables of the environment say it'
const ELSEWHERE = 'the data, which is in PostgreSQL: pg_dump or its own archive (systemd/README.md "PostgreSQL")'

const tell = (message: BackupThreadMessage): void => parentPort?.postMessage(message)

function writeBackup(data: BackupThreadData): void {
  const { folder, workFolder, configurationFolder } = data
  makeFolders(folder, workFolder)
  const mark = new Date(data.now).toISOString()
  const database = copyDatabase(data)
  const { schema, bytes, ...counted } = database ?? { schema: 0, counts: null, bytes: 0 }
  const { copied, missed } = copyConfiguration(configurationFolder, workFolder)
  const names = [...(database === null ? [] : [DATABASE]), ...copied]
  const files = Object.fromEntries(names.map((name) => [name, describeFile(join(workFolder, name))]))
  const origin = { format: 1, version: packageVersion(), schema, mark, host: hostname() } as const
  const left_out = [...LEFT_OUT, ...(database === null ? [ELSEWHERE] : []), ...missed]
  const manifest: BackupManifest = { ...origin, ...counted, files, left_out }
  writeFileSync(join(workFolder, MANIFEST), `${JSON.stringify(manifest, null, 2)}\n`)
  tell({ kind: 'stage', stage: 'packing', totalBytes: bytes })
  const unfinished = join(workFolder, 'archive')
  packArchive(unfinished, workFolder, [MANIFEST, ...names])
  const path = join(folder, archiveName(data.now, schema))
  settle(unfinished, path)
  tell({ kind: 'written', path, bytes: statSync(path).size, manifest })
}

function makeFolders(folder: string, workFolder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: FOLDER_MODE })
    rmSync(workFolder, { recursive: true, force: true })
    mkdirSync(workFolder, { mode: FOLDER_MODE })
  } catch (thrown) {
    throw new BackupError(unwritableText(folder, thrown) ?? errorText(thrown), { cause: thrown })
  }
}

type CopiedDatabase = Pick<BackupManifest, 'schema' | 'counts' | 'sealed_acme_keys'> & { bytes: number }

function copyDatabase({ databaseFile, folder, workFolder, keptFreeBytes }: BackupThreadData): CopiedDatabase | null {
  if (databaseFile === null) return null
  const copy = join(workFolder, DATABASE)
  const reader = new Sqlite(databaseFile, { readonly: true, fileMustExist: true })
  try {
    const bytes = contentBytes(reader)
    // On its own disk the server would take no more mail until the copy is gone.
    const isSameDisk = statSync(folder).dev === statSync(databaseFile).dev
    const needed = 2 * bytes + (isSameDisk ? Math.max(SPARE_BYTES, keptFreeBytes) : SPARE_BYTES)
    const free = freeBytesIn(folder)
    if (free < needed) throw new BackupError(`${needed} bytes are needed in ${folder}, ${free} are free`)
    tell({ kind: 'stage', stage: 'copying', totalBytes: bytes })
    reader.prepare('vacuum into ?').run(copy)
  } finally {
    reader.close()
  }
  const { size } = statSync(copy)
  tell({ kind: 'stage', stage: 'checking', totalBytes: size })
  return { ...checkCopy(copy), bytes: size }
}

/** By opening it: what cannot be read is no backup. */
function checkCopy(copy: string): Pick<BackupManifest, 'schema' | 'counts' | 'sealed_acme_keys'> {
  const database = new Sqlite(copy, { readonly: true, fileMustExist: true })
  try {
    const [problem] = integrityProblems(database)
    if (problem !== undefined) throw new BackupError(`the copy cannot be used: ${problem}`)
    return { schema: schemaVersion(database), counts: countRows(database), sealed_acme_keys: countAcmeKeys(database) }
  } finally {
    database.close()
  }
}

/** For the service of the machine it is unpacked on by root, whatever user that has; no secret is in them. */
const CONFIGURATION_MODE = 0o644

/** Of a file or folder of the configuration; a full disk is another matter. */
const UNREADABLE = ['ENOENT', 'EACCES', 'ENOTDIR', 'ELOOP', 'EISDIR', 'ERR_FS_EISDIR']

/**
 * The YAML files and drop-ins, which hold no secrets: those are named in them. Keys and certificates stay. What cannot
 * be read is named in the manifest, and keeps nobody from a copy of the database.
 */
function copyConfiguration(folder: string | null, workFolder: string): { copied: string[]; missed: string[] } {
  const copied: string[] = []
  const missed: string[] = []
  if (folder === null) return { copied, missed }
  if (!existsSync(folder)) return { copied, missed: [NO_FOLDER] }
  const miss = (name: string, thrown: unknown): void => {
    if (!UNREADABLE.includes(errorCode(thrown))) throw thrown
    missed.push(`${CONFIGURATION}/${name}, which could not be copied: ${errorText(thrown)}`)
  }
  for (const name of configurationNames(folder, miss)) {
    const target = join(workFolder, CONFIGURATION, name)
    mkdirSync(join(target, '..'), { recursive: true, mode: FOLDER_MODE })
    try {
      copyFileSync(join(folder, name), target)
      chmodSync(target, CONFIGURATION_MODE)
      copied.push(`${CONFIGURATION}/${name}`)
    } catch (thrown) {
      miss(name, thrown)
    }
  }
  return { copied, missed }
}

/** Also of drop-in folders that are links: the server reads those too. */
function configurationNames(folder: string, miss: (name: string, thrown: unknown) => void): string[] {
  const namesIn = (name: string): string[] => {
    try {
      return readdirSync(join(folder, name))
    } catch (thrown) {
      // A file of such a name is no drop-in.
      if (errorCode(thrown) !== 'ENOTDIR') miss(name, thrown)
      return []
    }
  }
  return namesIn('')
    .flatMap((name) => (name.endsWith('.d') ? namesIn(name).map((each) => `${name}/${each}`) : [name]))
    .filter((name) => name.endsWith('.yaml'))
}

if (parentPort !== null) {
  const data = workerData as BackupThreadData
  try {
    writeBackup(data)
  } catch (thrown) {
    tell({ kind: 'failed', sentence: errorText(thrown) })
  } finally {
    rmSync(data.workFolder, { recursive: true, force: true })
  }
}
