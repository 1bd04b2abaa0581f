/**
 * A real HTTP interface on an admin socket, and `sternpost` commands that are run against it by one process.
 */
import { fork, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { startApi, type ApiServer, type ApiServerOptions } from '../http/api-server.ts'
import type { Ended } from './command-runner.ts'

export interface CommandServer {
  api: ApiServer
  /** Of the configuration files. */
  folder: string
  /** On the admin socket. */
  run(...words: string[]): Promise<Ended>
}

export async function commandServer(t: Test, options: ApiServerOptions = {}): Promise<CommandServer> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  t.teardown(async () => rmSync(folder, { recursive: true, force: true }))
  const adminSocket = join(folder, 'admin.sock')
  writeServerFiles(folder, adminSocket)
  const api = await startApi(t, { ...options, adminSocket })
  return { api, folder, run: (...words) => sternpost([...words, '--config', folder]) }
}

/** The two files that an administrator writes. */
export function writeServerFiles(folder: string, adminSocket: string): void {
  writeFileSync(
    join(folder, 'sternpost.yaml'),
    JSON.stringify({
      version: 1,
      hostname: 'mail.sternpost.test',
      secrets: { master_key: { file: join(folder, 'none') } },
      listen: { http: [], submission: [], inbound: [], metrics: null, admin_socket: adminSocket },
    }),
  )
  const ip = { address: '203.0.113.10', hostname: 'mta1.sternpost.test', warmed: true }
  writeFileSync(
    join(folder, 'pools.yaml'),
    JSON.stringify({ version: 1, default_pool: 'default', pools: { default: { ips: [ip] } } }),
  )
}

let runner: ChildProcess | undefined
const waiting = new Map<number, (ended: Ended) => void>()

/** One after the other, in a process of its own. */
export function sternpost(words: string[], environment: Record<string, string> = {}): Promise<Ended> {
  const process = (runner ??= startRunner())
  return new Promise((resolve) => {
    const id = waiting.size
    waiting.set(id, resolve)
    process.send({ id, words, environment })
  })
}

function startRunner(): ChildProcess {
  const started = fork(new URL('./command-runner.ts', import.meta.url), {
    execArgv: [],
    // Never a terminal, wherever the tests run.
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  started.on('message', ({ id, ended }: { id: number; ended: Ended }) => waiting.get(id)?.(ended))
  // A verb that ran until it was interrupted has its own mind about the other signals.
  t.teardown(() => started.kill('SIGKILL'))
  return started
}

/** The cells of a table that was printed where there is no terminal. */
export const rows = (stdout: string): string[][] =>
  stdout
    .trimEnd()
    .split('\n')
    .map((line) => line.split('\t'))
