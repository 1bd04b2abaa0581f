/**
 * The archive of a backup, `sternpost-<UTC time>-<schema>.tar`: written and read by the system's `tar`, with
 * `manifest.json` first, so that what is in it is known without reading the rest. Throws BackupError, with a sentence.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { closeSync, existsSync, openSync, readdirSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { errorCode, errorText } from '../base/errors.ts'
import { BackupError, type BackupFile, type BackupManifest, type StoredBackup } from './records/backup-records.ts'

export const MANIFEST = 'manifest.json'
export const DATABASE = 'sternpost.db'
export const CONFIGURATION = 'config'
// The time without punctuation, and the schema.
const NAME = /^sternpost-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z-(\d+)\.tar$/
const MOST_MANIFEST_BYTES = 1_024 * 1_024
const PIECE_BYTES = 1_024 * 1_024
const MOST_ERROR_CHARACTERS = 300

export const archiveName = (madeAt: number, schema: number): string => `sternpost-${timeStamp(madeAt)}-${schema}.tar`

/** 20261121T031700Z */
export function timeStamp(at: number): string {
  const text = new Date(at).toISOString()
  return text.replace(/\.\d+Z$/, 'Z').replace(/[-:]/g, '')
}

/**
 * Newest first; a folder that is not there has none. Names of the future, of a clock that ran ahead, come last: what is
 * made now is newer.
 */
export function listArchives(folder: string, now: number): StoredBackup[] {
  const names = existsSync(folder) ? readdirSync(folder) : []
  return names
    .flatMap((name): StoredBackup[] => {
      const [, year, month, day, hour, minute, second, schema] = NAME.exec(name) ?? []
      if (schema === undefined) return []
      const madeAt = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`)
      const path = join(folder, name)
      const bytes = statSync(path, { throwIfNoEntry: false })?.size
      // Gone meanwhile, or a link that leads nowhere.
      if (bytes === undefined) return []
      const sealedAcmeKeys = glanceAtManifest(path)?.sealed_acme_keys ?? null
      return [{ path, bytes, madeAt, schema: Number(schema), sealedAcmeKeys }]
    })
    .sort((left, right) => Number(left.madeAt > now) - Number(right.madeAt > now) || right.madeAt - left.madeAt)
}

/** Of a tar header (ustar): 512 bytes, with the name, and the size in octal digits. */
const HEADER_BYTES = 512
const SIZE_AT = 124
const SIZE_DIGITS = 11

/** Without the program tar, which a list of many would wait for. null: it is not where we put it, or unreadable. */
function glanceAtManifest(archive: string): Partial<BackupManifest> | null {
  let file: number | undefined
  try {
    file = openSync(archive, 'r')
    const header = Buffer.alloc(HEADER_BYTES)
    readSync(file, header)
    const size = Number.parseInt(header.toString('latin1', SIZE_AT, SIZE_AT + SIZE_DIGITS), 8)
    if (!header.toString('latin1').startsWith(`${MANIFEST}\0`) || !(size <= MOST_MANIFEST_BYTES)) return null
    const content = Buffer.alloc(size)
    readSync(file, content)
    const manifest: unknown = JSON.parse(content.toString('utf8'))
    return isManifest(manifest) ? manifest : null
  } catch {
    // Whether a backup is whole is for `verify` to say.
    return null
  } finally {
    if (file !== undefined) closeSync(file)
  }
}

/** Packs these files of a folder, in this order. */
export function packArchive(archive: string, folder: string, names: readonly string[]): void {
  const owner = ['--owner=0', '--group=0', '--numeric-owner']
  tar(['--create', '--format=gnu', '--file', archive, ...owner, '--directory', folder, '--', ...names])
}

export function unpackArchive(archive: string, folder: string): void {
  const safe = ['--no-same-owner', '--no-same-permissions', '--no-overwrite-dir']
  tar(['--extract', '--file', archive, ...safe, '--directory', folder, '--', ...membersOf(archive)])
}

/** Only what we write: an archive from elsewhere puts nothing anywhere. */
function membersOf(archive: string): string[] {
  const { files } = readManifest(archive)
  const names = [MANIFEST, ...Object.keys(files)]
  const strange = names.find((name) => name.startsWith('/') || name.split('/').includes('..'))
  if (strange !== undefined) throw new BackupError(`${archive} is no backup of Sternpost: it names ${strange}`)
  return names
}

export function readManifest(archive: string): BackupManifest {
  statSync(archive)
  const text = tar(['--extract', '--to-stdout', '--occurrence=1', '--file', archive, '--', MANIFEST])
  let manifest: unknown
  try {
    manifest = JSON.parse(text)
  } catch (thrown) {
    throw new BackupError(`${archive} is no backup of Sternpost: its ${MANIFEST} is no JSON`, { cause: thrown })
  }
  if (isManifest(manifest)) return manifest
  throw new BackupError(`${archive} is no backup that this program can read: its ${MANIFEST} has another format`)
}

function isManifest(value: unknown): value is BackupManifest {
  if (typeof value !== 'object' || value === null) return false
  const { format, schema, mark, counts, files } = value as Record<string, unknown>
  return (
    format === 1 &&
    typeof schema === 'number' &&
    typeof mark === 'string' &&
    typeof counts === 'object' &&
    typeof files === 'object' &&
    files !== null &&
    (counts === null || DATABASE in files)
  )
}

/** Size and checksum of a file, read in pieces. */
export function describeFile(path: string): BackupFile {
  const hash = createHash('sha256')
  const piece = Buffer.allocUnsafe(PIECE_BYTES)
  const file = openSync(path, 'r')
  let bytes = 0
  try {
    for (let read = readSync(file, piece); read > 0; read = readSync(file, piece)) {
      hash.update(piece.subarray(0, read))
      bytes += read
    }
  } finally {
    closeSync(file)
  }
  return { bytes, sha256: hash.digest('hex') }
}

function tar(words: readonly string[]): string {
  try {
    return execFileSync('tar', words, {
      encoding: 'utf8',
      maxBuffer: MOST_MANIFEST_BYTES,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, LC_ALL: 'C' },
    })
  } catch (thrown) {
    if (errorCode(thrown) === 'ENOENT') throw new BackupError('the program tar is missing', { cause: thrown })
    const said = typeof thrown === 'object' && thrown !== null && 'stderr' in thrown ? String(thrown.stderr) : ''
    const text = (said === '' ? errorText(thrown) : said).trim().slice(0, MOST_ERROR_CHARACTERS)
    throw new BackupError(`tar failed: ${text}`, { cause: thrown })
  }
}
