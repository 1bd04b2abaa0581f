/**
 * The data folder of the sandbox: made private, marked as ours, and deleted only when the mark is there. ProcessExit 64
 * for a folder with other files or too long a path, 75 for one that a sandbox still uses. The master key is made at the
 * first start and stays with the database that it belongs to.
 */
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { errorCode, EXIT, ProcessExit } from '../base/errors.ts'
import { MASTER_KEY_BYTES } from '../base/key-ring.ts'
import { adminSocketFile, masterKeyFile } from './sandbox-settings.ts'

const MARKER = '.sternpost-sandbox'
const MARKER_TEXT = 'This folder belongs to the Sternpost sandbox; "sternpost sandbox --fresh" deletes it.\n'
const API_KEY_FILE = 'key'
const PROCESS_FILE = 'process-id'
/** Bytes in the path of a socket (unix(7)); the systems of BSD have four less. */
const MOST_SOCKET_BYTES = process.platform === 'linux' ? 107 : 103
const PRIVATE_FOLDER = 0o700
const PRIVATE_FILE = 0o600

interface WantedFolder {
  /** Absolute. */
  folder: string
  isFresh: boolean
  /** Where the kernel shows its processes (proc(5)); macOS has no such place. */
  processesAt?: string
}

export function prepareDataFolder({ folder, isFresh, processesAt = '/proc' }: WantedFolder): void {
  if (Buffer.byteLength(adminSocketFile(folder)) > MOST_SOCKET_BYTES) {
    const problem = `the path ${folder} is too long for the socket in it; choose a shorter --data folder`
    throw new ProcessExit(EXIT.usage, `sternpost: ${problem}`)
  }
  const names = existsSync(folder) ? readdirSync(folder) : []
  const isOurs = names.includes(MARKER)
  if (names.length > 0 && !isOurs) {
    const problem = `${folder} holds files that are not the sandbox's; choose another --data folder`
    throw new ProcessExit(EXIT.usage, `sternpost: ${problem}`)
  }
  if (isOurs) refuseSecondSandbox(folder, processesAt)
  if (isOurs && isFresh) rmSync(folder, { recursive: true })
  mkdirSync(folder, { recursive: true, mode: PRIVATE_FOLDER })
  // An empty folder that was there already may be open to others.
  chmodSync(folder, PRIVATE_FOLDER)
  writeFileSync(join(folder, MARKER), MARKER_TEXT, { mode: PRIVATE_FILE })
  writeFileSync(join(folder, PROCESS_FILE), String(process.pid), { mode: PRIVATE_FILE })
  const keyFile = masterKeyFile(folder)
  if (existsSync(keyFile)) return
  writeFileSync(keyFile, randomBytes(MASTER_KEY_BYTES).toString('base64'), { mode: PRIVATE_FILE })
}

/** Before anything is written or deleted: the folder is in use. */
function refuseSecondSandbox(folder: string, processesAt: string): void {
  const file = join(folder, PROCESS_FILE)
  const processId = Number(existsSync(file) ? readFileSync(file, 'utf8') : '')
  if (!Number.isInteger(processId) || processId <= 0 || processId === process.pid || !isAlive(processId)) return
  // A number may have gone to another program since, so the words of its command are looked at.
  const words = wordsOfCommand(processId, processesAt)
  if (words === null || words.includes('sandbox')) {
    throw new ProcessExit(EXIT.tryAgain, `sternpost: a sandbox (process ${processId}) uses ${folder}; stop it first`)
  }
}

function isAlive(processId: number): boolean {
  try {
    return process.kill(processId, 0)
  } catch (thrown) {
    // EPERM: somebody else's.
    return errorCode(thrown) !== 'ESRCH'
  }
}

/** null: nobody tells. */
function wordsOfCommand(processId: number, processesAt: string): string[] | null {
  try {
    return readFileSync(join(processesAt, String(processId), 'cmdline'), 'utf8').split('\0')
  } catch {
    // Elsewhere, or it has just ended.
    const { status, stdout } = spawnSync('ps', ['-ww', '-o', 'args=', '-p', String(processId)], { encoding: 'utf8' })
    return status === null ? null : stdout.trim().split(/\s+/)
  }
}

/** The API key of this sandbox, or undefined before its first start. */
export function readApiKey(folder: string): string | undefined {
  const file = join(folder, API_KEY_FILE)
  return existsSync(file) ? readFileSync(file, 'utf8').trim() : undefined
}

export function keepApiKey(folder: string, key: string): void {
  writeFileSync(join(folder, API_KEY_FILE), `${key}\n`, { mode: PRIVATE_FILE })
}
