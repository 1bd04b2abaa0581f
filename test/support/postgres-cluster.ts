/**
 * A PostgreSQL cluster of the test's own, from Debian's package: in a folder of its own, on a port of its own on
 * loopback, never the system's. What the server does to keep data over a power cut is off: a kill of its processes is
 * survived all the same.
 */
import { execFileSync, spawn } from 'node:child_process'
import { appendFileSync, chownSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { freePort } from './serve-process.ts'

const VERSIONS = '/usr/lib/postgresql'
const USER = 'postgres'

const programs = (): string | undefined => {
  if (!existsSync(VERSIONS)) return undefined
  const newest = readdirSync(VERSIONS).toSorted((left, right) => Number(right) - Number(left))[0]
  return newest === undefined ? undefined : join(VERSIONS, newest, 'bin')
}

/** For tap's `skip`. */
export const skipWithoutPostgres = programs() === undefined ? 'Debian package postgresql is not installed' : false

export interface PostgresCluster {
  port: number
  /** Of the server: all its others are below it. */
  readonly processId: number
  /** Belongs to the user that the server runs as. */
  folder: string
  /** Of a database of this cluster; `through`: the port of a proxy. */
  url(database: string, through?: number): string
  /** A new database, empty or as the one of this name. */
  createDatabase(like?: string): Promise<string>
  query(text: string, database?: string): Promise<Record<string, unknown>[]>
  /** All its processes: a session that is at work would live on, and take and answer more. */
  kill(): Promise<void>
  start(): Promise<void>
}

interface PostgresClusterOptions {
  settings?: Record<string, string | number>
  /** That it speaks, as `de`, where its texts are installed. */
  language?: string
  /** Networks that it also listens to. */
  networks?: readonly string[]
  /** It follows this one, until it is promoted. */
  primary?: PostgresCluster
}

export async function startPostgres(
  t: { teardown(end: () => unknown): void },
  { settings = {}, language = '', networks = [], primary }: PostgresClusterOptions = {},
): Promise<PostgresCluster> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-postgres-'))
  const owner = ownerOf(USER)
  if (owner !== null) chownSync(folder, owner.uid, owner.gid)
  const data = join(folder, 'data')
  const port = await freePort()
  const bin = programs() ?? ''
  // A language is chosen by name only where the locale is another one than C.
  const env = { ...process.env, LANGUAGE: language }
  const run = { ...owner, cwd: folder, env, stdio: 'ignore' as const }
  if (primary === undefined) {
    execFileSync(join(bin, 'initdb'), ['-D', data, '-U', USER, '-A', 'trust', '--locale=C', '-E', 'UTF8', '-N'], run)
    const lines = networks.map((network) => `host all all ${network} trust\n`)
    appendFileSync(join(data, 'pg_hba.conf'), lines.join(''))
  } else {
    const words = ['-D', data, '-R', '-c', 'fast', '-d', primary.url('postgres')]
    execFileSync(join(bin, 'pg_basebackup'), words, run)
  }
  const options = {
    listen_addresses: networks.length === 0 ? '127.0.0.1' : '*',
    port,
    unix_socket_directories: folder,
    fsync: 'off',
    max_connections: 60,
    lc_messages: language === '' ? 'C' : 'C.UTF-8',
    ...settings,
  }
  let server: ReturnType<typeof spawn> | undefined
  const url = (database: string, through = port): string => `postgres://${USER}@127.0.0.1:${through}/${database}`
  const start = async (): Promise<void> => {
    const given = Object.entries(options).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const spawnServer = (): void => void (server = spawn(join(bin, 'postgres'), ['-D', data, ...given], run))
    spawnServer()
    // It ends at once while sessions that were killed still hold the memory of the one before.
    await untilReady(url('postgres'), () => (server?.exitCode ?? null) === null || spawnServer())
  }
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    const ended = server
    server = undefined
    if (ended === undefined || ended.exitCode !== null) return
    const gone = new Promise((resolve) => ended.once('exit', resolve))
    ended.kill(signal)
    await gone
  }
  t.teardown(async () => {
    await end('SIGQUIT')
    rmSync(folder, { recursive: true, force: true })
  })
  await start()
  const query = async (text: string, database = 'postgres'): Promise<Record<string, unknown>[]> => {
    const client = new pg.Client({ connectionString: url(database) })
    await client.connect()
    try {
      return (await client.query(text)).rows as Record<string, unknown>[]
    } finally {
      await client.end()
    }
  }
  let made = 0
  return {
    port,
    get processId() {
      return server?.pid ?? 0
    },
    folder,
    url,
    query,
    async createDatabase(like) {
      const name = `store_${++made}`
      await query(`create database ${name}${like === undefined ? '' : ` template ${like}`}`)
      return name
    },
    async kill() {
      // It starts no other one meanwhile.
      server?.kill('SIGSTOP')
      const sessions = childrenOf(server?.pid ?? 0)
      await end('SIGKILL')
      for (const session of sessions) endIfThere(session)
    },
    start,
  }
}

function childrenOf(processId: number): number[] {
  const file = `/proc/${processId}/task/${processId}/children`
  return existsSync(file) ? readFileSync(file, 'utf8').split(' ').filter(Boolean).map(Number) : []
}

function endIfThere(processId: number): void {
  try {
    process.kill(processId, 'SIGKILL')
  } catch {
    // It has ended with the server.
  }
}

/** Of a user of this machine; null: whoever runs the test is somebody else than root, whom the server refuses. */
function ownerOf(user: string): { uid: number; gid: number } | null {
  if (process.getuid?.() !== 0) return null
  const numberOf = (flag: string): number => Number(execFileSync('id', [flag, user], { encoding: 'utf8' }))
  return { uid: numberOf('-u'), gid: numberOf('-g') }
}

/** `keepRunning`: before each further try. */
async function untilReady(url: string, keepRunning: () => unknown): Promise<void> {
  const deadline = Date.now() + 30_000
  for (;;) {
    const client = new pg.Client({ connectionString: url })
    client.on('error', () => {})
    try {
      await client.connect()
      await client.end()
      return
    } catch (thrown) {
      if (Date.now() > deadline) throw thrown
      await new Promise((resolve) => setTimeout(resolve, 50))
      keepRunning()
    }
  }
}
