/**
 * The files that `sternpost setup` writes: configuration, master key, and a self-signed certificate where none come by
 * themselves. They are written beside their places, read as the server would read them, and only then put there. What
 * is there already stays, and so does what appears meanwhile. Throws ConfigurationError for files that the server would
 * refuse, ProcessExit 78 for half a certificate and for data whose master key is missing, and the system's errors;
 * nothing is left behind then.
 */
import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ConfigurationError, EXIT, ProcessExit, errorText } from '../../base/errors.ts'
import { MASTER_KEY_BYTES } from '../../base/key-ring.ts'
import { shellWord } from '../../base/shell-word.ts'
import { loadConfiguration, type Configuration } from '../../config/load-configuration.ts'
import { databaseParts } from '../../store/open/offline.ts'
import { SHIPPED_FOLDER } from '../shared/flag-values.ts'
import type { SetupAnswers } from './answers.ts'
import { poolsText, serverText } from './texts.ts'
import { execFileSync } from 'node:child_process'

export interface SetupFiles {
  /** As old and new files say it together. */
  configuration: Configuration
  /** Paths from the folder on. */
  added: string[]
  kept: string[]
  /** Puts what is new into its place. */
  commit(): void
  /** What was put in place is taken away again; returns what that was. */
  remove(): string[]
}

interface SetupFilesOptions {
  folder: string
  answers: SetupAnswers
  /** The IPs have sent mail before. */
  isWarmed: boolean
}

interface WantedFile {
  /** From the folder on. */
  path: string
  mode: number
}

const SECRET = 0o600
/** For the group of the service; the others for root alone. */
const FOR_SERVICE = 0o640
const FOLDER = 0o750
const SERVER = 'sternpost.yaml'
const POOLS = 'pools.yaml'
const MASTER_KEY = 'master.key'
const TLS = 'tls'
export const CERTIFICATE = join(TLS, 'fullchain.pem')
const CERTIFICATE_KEY = join(TLS, 'privkey.pem')
const GROUP = 'sternpost'

const WANTED: readonly WantedFile[] = [
  { path: SERVER, mode: FOR_SERVICE },
  { path: POOLS, mode: FOR_SERVICE },
  // systemd reads it as root and hands a copy to the service.
  { path: MASTER_KEY, mode: SECRET },
  { path: CERTIFICATE, mode: FOR_SERVICE },
  { path: CERTIFICATE_KEY, mode: FOR_SERVICE },
]

export function stageFiles({ folder, answers, isWarmed }: SetupFilesOptions): SetupFiles {
  const isThere = (path: string): boolean => existsSync(join(folder, path))
  const isNewFolder = !existsSync(folder)
  const missing = missingFiles(isThere, folder, answers.authority !== null)
  if (isNewFolder) makeFolder(folder)
  const staging = mkdtempSync(join(folder, '.setup-'))
  const discard = (): void => {
    rmSync(staging, { recursive: true, force: true })
    if (isNewFolder && existsSync(folder) && readdirSync(folder).length === 0) rmSync(folder, { recursive: true })
  }
  try {
    const configuration = write(missing, { staging, folder, answers, isWarmed })
    // Beside a master key that is read from elsewhere, as in a container, another one would be taken for it.
    const hasKey = configuration.server.secrets.master_key.length > 0
    const added = missing.filter(({ path }) => path !== MASTER_KEY || !hasKey)
    return {
      configuration,
      added: added.map(({ path }) => path),
      kept: WANTED.map(({ path }) => path).filter(isThere),
      ...placing(added, { staging, folder, discard, hasData: () => hasData(configuration) }),
    }
  } catch (thrown) {
    discard()
    throw withRealPaths(thrown, staging, folder)
  }
}

/** A sternpost.yaml of the administrator's names its own certificates; one of ours needs both files. */
function missingFiles(isThere: (path: string) => boolean, folder: string, isOrdered: boolean): WantedFile[] {
  const pair = [CERTIFICATE, CERTIFICATE_KEY]
  const found = pair.filter(isThere)
  if (found.length === 1 && !isThere(SERVER)) {
    const text = `sternpost: of ${pair.join(' and ')} in ${folder} only ${found.join('')} is there.`
    throw new ProcessExit(EXIT.configuration, `${text} Fix: put both there, or move it away`)
  }
  const needsPair = !isOrdered && !isThere(SERVER)
  return WANTED.filter(({ path }) => !isThere(path) && (needsPair || !pair.includes(path)))
}

interface Placing {
  staging: string
  folder: string
  discard(): void
  hasData(): boolean
}

function placing(
  files: readonly WantedFile[],
  { staging, folder, discard, hasData }: Placing,
): Pick<SetupFiles, 'commit' | 'remove'> {
  const tls = join(folder, TLS)
  const inPlace: string[] = []
  let madeTls = false
  const remove = (): string[] => {
    // What a server made meanwhile opens with this key alone.
    const removed = inPlace.splice(0).filter((path) => path !== MASTER_KEY || !hasData())
    for (const path of removed) rmSync(join(folder, path), { force: true })
    if (madeTls && existsSync(tls) && readdirSync(tls).length === 0) rmSync(tls, { recursive: true })
    discard()
    return removed
  }
  return {
    remove,
    commit() {
      try {
        if (!existsSync(tls) && files.some(({ path }) => path === CERTIFICATE)) {
          makeFolder(tls)
          madeTls = true
        }
        for (const { path } of files) {
          // Unlike a rename this refuses to take the place of another file.
          linkSync(join(staging, path), join(folder, path))
          inPlace.push(path)
        }
      } catch (thrown) {
        remove()
        throw thrown
      }
      discard()
    },
  }
}

/** What is missing goes beside links to all that stays, and is read as the server would; its answer comes back. */
function write(files: readonly WantedFile[], facts: SetupFilesOptions & { staging: string }): Configuration {
  const { staging, folder, answers, isWarmed } = facts
  const isMissing = (path: string): boolean => files.some((file) => file.path === path)
  const put = (path: string, text: string): void => {
    if (isMissing(path)) writeFileSync(join(staging, path), text, { mode: SECRET })
  }
  for (const name of readdirSync(folder)) {
    if (name === TLS || name.startsWith('.') || isMissing(name)) continue
    symlinkSync(join(folder, name), join(staging, name))
  }
  mkdirSync(join(staging, TLS))
  put(MASTER_KEY, `${randomBytes(MASTER_KEY_BYTES).toString('base64')}\n`)
  const hostname = isMissing(SERVER) ? (answers.hostname ?? '') : hostnameAmong(staging, answers, put)
  put(POOLS, poolsText(hostname, answers.ips, isWarmed))
  if (isMissing(CERTIFICATE)) makeCertificate(hostname, placesIn(staging))
  const serverWith = (places: string): void => put(SERVER, serverText({ ...answers, hostname, ...placesIn(places) }))
  // The certificate is not yet where it will be.
  serverWith(isMissing(CERTIFICATE) ? staging : folder)
  const configuration = loadConfiguration({ folder: staging, shippedFolder: SHIPPED_FOLDER, neededSecrets: 'none' })
  serverWith(folder)
  if (isMissing(MASTER_KEY)) refuseNewKey(folder, configuration)
  for (const { path, mode } of files) {
    chmodSync(join(staging, path), mode)
    if (mode === FOR_SERVICE) giveToService(join(staging, path))
  }
  return configuration
}

const hasData = ({ server }: Configuration): boolean => databaseParts(server.data_dir).length > 0

/** With another key than it was made with, data loses its secrets (DKIM keys, webhooks) without a word. */
function refuseNewKey(folder: string, configuration: Configuration): void {
  const { data_dir: dataFolder, secrets } = configuration.server
  const [place, found] = [join(folder, MASTER_KEY), join(dataFolder, MASTER_KEY)]
  const refuse = (fix: string): never => {
    throw new ProcessExit(
      EXIT.configuration,
      `sternpost: ${dataFolder} has data, and ${place} is not there. Fix: ${fix}`,
    )
  }
  // A purge of the package puts it there, whatever engine has the data.
  if (existsSync(found)) refuse(`mv ${shellWord(found)} ${shellWord(place)}`)
  // One that is read from elsewhere is the administrator's.
  if (secrets.master_key.length > 0 || !hasData(configuration)) return
  refuse(`put the key there that the data was made with; where it is lost, and DKIM keys and webhook secrets with it:
  (umask 077; openssl rand -base64 32 > ${shellWord(place)})`)
}

function placesIn(folder: string): { certificate: string; key: string } {
  return { certificate: join(folder, CERTIFICATE), key: join(folder, CERTIFICATE_KEY) }
}

const STAND_IN = 'setup.invalid'

/** Resolver and all else that the files say so far, whatever is missing. Throws ConfigurationError for wrong ones. */
export function configurationAmong(folder: string, ips: SetupAnswers['ips']): Configuration {
  const staging = mkdtempSync(join(tmpdir(), 'sternpost-setup-'))
  try {
    const names = existsSync(folder) ? readdirSync(folder) : []
    for (const name of names) symlinkSync(join(folder, name), join(staging, name))
    const put = (path: string, text: string): void => {
      if (!names.includes(path)) writeFileSync(join(staging, path), text)
    }
    const authority = { directory: 'letsencrypt', caFile: null }
    put(SERVER, serverText({ hostname: STAND_IN, operatorEmail: null, authority, ...placesIn(folder) }))
    put(POOLS, poolsText(STAND_IN, ips, false))
    return loadConfiguration({ folder: staging, shippedFolder: SHIPPED_FOLDER, offline: true, neededSecrets: 'none' })
  } finally {
    rmSync(staging, { recursive: true })
  }
}

/** Of a sternpost.yaml that is there already, which can only be read together with some pools. */
function hostnameAmong(staging: string, answers: SetupAnswers, put: (path: string, text: string) => void): string {
  put(POOLS, poolsText(STAND_IN, answers.ips, false))
  const options = { shippedFolder: SHIPPED_FOLDER, offline: true, neededSecrets: 'none' } as const
  return loadConfiguration({ folder: staging, ...options }).server.hostname
}

function withRealPaths(thrown: unknown, staging: string, folder: string): unknown {
  if (!(thrown instanceof ConfigurationError)) return thrown
  return new ConfigurationError(
    thrown.mistakes.map((mistake) => ({
      ...mistake,
      file: mistake.file.replace(staging, folder),
      message: mistake.message.replaceAll(staging, folder),
    })),
  )
}

/** Whatever the umask. */
function makeFolder(folder: string): void {
  mkdirSync(folder, { recursive: true })
  chmodSync(folder, FOLDER)
  giveToService(folder)
}

/** To its group, where the package made that and we may. */
function giveToService(path: string): void {
  if (process.getuid?.() !== 0) return
  const group = groupNumber()
  if (group !== null) chownSync(path, 0, group)
}

function groupNumber(): number | null {
  const line = readFileSync('/etc/group', 'utf8')
    .split('\n')
    .find((each) => each.startsWith(`${GROUP}:`))
  const number = Number(line?.split(':')[2])
  return Number.isInteger(number) ? number : null
}

const CERTIFICATE_DAYS = '365'

/**
 * Self-signed, for the host name and that of tracked links, until a real one is there. By openssl, which the package
 * depends on; throws ProcessExit 1 with its words.
 */
function makeCertificate(hostname: string, { certificate, key }: ReturnType<typeof placesIn>): void {
  const names = `subjectAltName=DNS:${hostname},DNS:track.${hostname}`
  const kind = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /O=Sternpost/CN=self-signed'
  const words = [...kind.split(' '), '-days', CERTIFICATE_DAYS, '-addext', names, '-keyout', key, '-out', certificate]
  try {
    execFileSync('openssl', words, { stdio: ['ignore', 'ignore', 'pipe'] })
  } catch (cause) {
    const text = `sternpost: openssl made no certificate (${errorText(cause).trim()}). Fix: apt install openssl`
    throw new ProcessExit(EXIT.failed, text, { cause })
  }
}
