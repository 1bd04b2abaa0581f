/**
 * `sternpost serve` as a process of its own, the way an administrator runs it: configuration files in a folder, a key
 * from the command line, HTTP from outside. For tests that kill it, look at it from outside, or measure it.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { closeSync, mkdirSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { until } from './until.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
export const MASTER_KEY = Buffer.alloc(32, 7).toString('base64')
const START_DEADLINE = 120_000
const LOOPBACK = '127.0.0.1'
const run = promisify(execFile)

export interface ServeOptions {
  /** `IP:port` of the DNS server it asks. */
  dnsServer: string
  /** Port that the receiving servers listen on. */
  deliveryPort: number
  /** pools.yaml; JSON is YAML. */
  pools: unknown
  /** Left out: a free one. A test that writes `listen.http` itself names its port here. */
  httpPort?: number
  /** Where it serves HTTP; left out: loopback. */
  httpAddress?: string
  /** Words before its command: those that run it on another machine (`machines.ts`). */
  command?: readonly string[]
  /** Keys of sternpost.yaml beside those that this file sets, by section. */
  settings?: Record<string, Record<string, unknown>>
  /** Further files of the configuration folder, by path in it. */
  files?: Record<string, unknown>
  /** Where the database is kept, when the test brings the folder; it is not removed. */
  dataFolder?: string
  /** Of the process, beside our own. */
  environment?: Record<string, string>
}

export interface ServeProcess {
  readonly baseUrl: string
  readonly metricsUrl: string
  readonly configurationFolder: string
  readonly databaseFolder: string
  readonly processId: number
  /** null while it runs, and when a signal ended it. */
  exitCode(): number | null
  /** The lines of the log so far, parsed. */
  log(): Record<string, unknown>[]
  createKey(...scopes: string[]): Promise<string>
  /** Starts it again on the same data, after a stop or a kill. */
  start(): Promise<void>
  /** SIGTERM; resolves with the exit code. */
  stop(): Promise<number | null>
  /** SIGKILL to the whole process. */
  kill(): Promise<void>
  /** Ends it and removes its folder. */
  remove(): Promise<void>
}

export async function startServe(options: ServeOptions): Promise<ServeProcess> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  const httpPort = options.httpPort ?? (await freePort())
  const baseUrl = `http://${options.httpAddress ?? LOOPBACK}:${httpPort}`
  const metricsPort = await freePort()
  writeConfiguration(folder, { ...options, httpPort, metricsPort })
  const log = createLogFile(join(folder, 'server.log'))
  let child: ChildProcess | undefined
  let errors = ''

  const start = async (): Promise<void> => {
    errors = ''
    const [program = 'sh', ...words] = [...(options.command ?? []), 'sh', COMMAND, 'serve', '--config', folder]
    const started = spawn(program, words, {
      stdio: ['ignore', log.descriptor, 'pipe'],
      env: { ...process.env, ...options.environment },
    })
    child = started
    started.stderr?.on('data', (text: Buffer) => (errors += text.toString()))
    await until(
      'the server answers',
      () => {
        if (started.exitCode !== null) throw new Error(`the server ended with ${started.exitCode}: ${errors}`)
        return isHealthy(baseUrl)
      },
      START_DEADLINE,
    )
  }
  const end = async (signal: NodeJS.Signals): Promise<number | null> => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return child?.exitCode ?? null
    const ended = once(child, 'exit')
    child.kill(signal)
    await ended
    return child.exitCode
  }
  const server: ServeProcess = {
    baseUrl,
    metricsUrl: `http://127.0.0.1:${metricsPort}/metrics`,
    configurationFolder: folder,
    databaseFolder: options.dataFolder ?? join(folder, 'data'),
    get processId() {
      return child?.pid ?? Number.NaN
    },
    exitCode: () => child?.exitCode ?? null,
    log: log.lines,
    async createKey(...scopes) {
      const words = scopes.flatMap((scope) => ['--scope', scope])
      const verb = ['key', 'create', '--name', 'test', '--config', folder, '--json']
      const { stdout } = await run('sh', [COMMAND, ...verb, ...words])
      const created: unknown = JSON.parse(stdout)
      return typeof created === 'object' && created !== null && 'key' in created ? String(created.key) : ''
    },
    start,
    stop: () => end('SIGTERM'),
    kill: async () => void (await end('SIGKILL')),
    async remove() {
      await end('SIGKILL')
      log.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
  try {
    await start()
  } catch (thrown) {
    await server.remove()
    throw thrown
  }
  return server
}

/** Below the ports that systems give to outgoing connections: those of other tests would take it meanwhile. */
const LOWEST_PORT = 10_240
const HIGHEST_PORT = 32_000
/** Of test files side by side each has a part of the ports to itself (`jobs` of .taprc, and room for more). */
const PARTS = 8
const given = new Set<number>()

/**
 * Free at this moment, and given to no other caller: to none in this process, nor in a test file beside it; a process
 * that is none of them has the whole range.
 */
export async function freePort(
  address = '127.0.0.1',
  [lowest, highest] = [LOWEST_PORT, HIGHEST_PORT],
): Promise<number> {
  const job = process.env['TAP_JOB_ID']
  const length = job === undefined ? highest - lowest : Math.floor((highest - lowest) / PARTS)
  const first = lowest + (job === undefined ? 0 : (Number(job) % PARTS) * length)
  for (;;) {
    const left = Array.from({ length }, (_, index) => first + index).filter((each) => !given.has(each))
    const port = left[randomInt(Math.max(left.length, 1))]
    if (port === undefined) throw new Error(`no port from ${first} to ${first + length - 1} is left`)
    given.add(port)
    if (await isFree(port, address)) return port
  }
}

async function isFree(port: number, address: string): Promise<boolean> {
  const server = createServer().listen(port, address)
  try {
    await once(server, 'listening')
  } catch {
    // Somebody else has it.
    return false
  }
  server.close()
  await once(server, 'close')
  return true
}

export interface WrittenConfiguration extends ServeOptions {
  httpPort: number
  metricsPort: number
}

export function writeConfiguration(folder: string, options: WrittenConfiguration): void {
  const { settings = {} } = options
  const dataFolder = options.dataFolder ?? join(folder, 'data')
  mkdirSync(dataFolder, { recursive: true })
  const serve = ['api', 'console', ...(settings['tls']?.['acme'] === undefined ? [] : ['acme'])]
  writeFileSync(join(folder, 'master.key'), MASTER_KEY, { mode: 0o600 })
  const server = {
    ...settings,
    version: 1,
    hostname: 'mail.sternpost.test',
    data_dir: dataFolder,
    secrets: { master_key: { file: join(folder, 'master.key') } },
    listen: {
      http: [{ address: options.httpAddress ?? LOOPBACK, port: options.httpPort, tls: false, serve }],
      submission: [],
      inbound: [],
      metrics: { address: '127.0.0.1', port: options.metricsPort },
      admin_socket: join(folder, 'admin.sock'),
      ...settings['listen'],
    },
    dns: { servers: [options.dnsServer], ...settings['dns'] },
    delivery: { port: options.deliveryPort, allow_private_addresses: true, ...settings['delivery'] },
    webhooks: { allow_http: true, allow_private_addresses: true, ...settings['webhooks'] },
  }
  const files: Record<string, unknown> = { 'sternpost.yaml': server, 'pools.yaml': options.pools, ...options.files }
  for (const [name, content] of Object.entries(files)) {
    const file = join(folder, name)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, JSON.stringify(content, null, 2))
  }
}

async function isHealthy(baseUrl: string): Promise<boolean> {
  try {
    return (await fetch(`${baseUrl}/health`)).status === 200
  } catch {
    // Not listening yet.
    return false
  }
}

const LOG_PIECE_BYTES = 1_048_576

interface LogFile {
  descriptor: number
  lines(): Record<string, unknown>[]
  /** The lines that were read so far stay. */
  close(): void
}

/** A file and no pipe: what the process writes costs the reader nothing before somebody asks for it. */
function createLogFile(file: string): LogFile {
  const descriptor = openSync(file, 'a+')
  const piece = Buffer.alloc(LOG_PIECE_BYTES)
  const lines: Record<string, unknown>[] = []
  let position = 0
  let isOpen = true
  const read = (): void => {
    for (;;) {
      const bytes = readSync(descriptor, piece, 0, piece.length, position)
      // What follows the last line end is a line that is being written.
      const whole = piece.subarray(0, bytes).lastIndexOf('\n') + 1
      if (whole === 0) return
      position += whole
      for (const text of piece.toString('utf8', 0, whole - 1).split('\n')) {
        lines.push(JSON.parse(text) as Record<string, unknown>)
      }
    }
  }
  return {
    descriptor,
    lines() {
      if (isOpen) read()
      return lines
    },
    close() {
      if (isOpen) closeSync(descriptor)
      isOpen = false
    },
  }
}
