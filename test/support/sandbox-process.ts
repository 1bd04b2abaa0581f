/**
 * `sternpost sandbox` as a process of its own, as a newcomer starts it, and the few requests that tests make of it.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from './serve-process.ts'
import { until } from './until.ts'

/** The one JSON line that stands for the banner. */
export interface Banner {
  console: string
  base_url: string
  key: string
  curl: string
}

export interface SandboxProcess {
  banner: Banner
  folder: string
  /** A request of the API or below `/dev`; the parsed answer. */
  ask(method: string, path: string, body?: unknown): Promise<Record<string, unknown>>
  /** Sends one message and gives its id. */
  send(message: Record<string, string>): Promise<string>
  /** The entries of a list below `/dev`. */
  list<Entry>(path: string): Promise<Entry[]>
  stop(): Promise<void>
  /** SIGKILL. */
  kill(): Promise<void>
}

/** The part of a test that cleans up. */
export interface Teardown {
  teardown(clean: () => unknown): void
}

interface SandboxOptions {
  folder?: string
  flags?: string[]
  /** Of the process, beside our own. */
  environment?: Record<string, string>
}

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
const START_DEADLINE = 120_000

export async function startSandbox(
  t: Teardown,
  { folder = temporaryFolder(t), flags = [], environment = {} }: SandboxOptions = {},
): Promise<SandboxProcess> {
  const ports = ['--port', String(await freePort()), '--smtp-port', String(await freePort())]
  const words = [COMMAND, 'sandbox', '--json', '--data', folder, ...ports, ...flags]
  const child = spawn('sh', words, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...environment } })
  const stop = (): Promise<void> => end(child)
  t.teardown(stop)
  const banner = await firstLine(child)
  const ask: SandboxProcess['ask'] = async (method, path, body) => {
    const answer = await fetch(new URL(path, banner.base_url), {
      method,
      headers: { Authorization: `Bearer ${banner.key}`, 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    })
    return (await answer.json()) as Record<string, unknown>
  }
  return {
    banner,
    folder,
    ask,
    stop,
    kill: () => end(child, 'SIGKILL'),
    async send(message) {
      const answer = await ask('POST', '/v1/email/send', { subject: 'Hello', text: 'Hi', ...message })
      return String(answer['message_id'])
    },
    list: async <Entry>(path: string) => (await ask('GET', path))['data'] as Entry[],
  }
}

export function temporaryFolder(t: Teardown): string {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  t.teardown(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

/** A signal to one that runs. */
export async function end(child: ChildProcess, signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill(signal)
  await ended
}

async function firstLine(child: ChildProcess): Promise<Banner> {
  let output = ''
  let errors = ''
  child.stdout?.on('data', (text: Buffer) => (output += text.toString()))
  child.stderr?.on('data', (text: Buffer) => (errors += text.toString()))
  return until(
    'the banner',
    () => {
      if (child.exitCode !== null) throw new Error(`the sandbox ended with ${child.exitCode}: ${errors}`)
      const line = output.split('\n').find((text) => text.includes('"curl"'))
      return line === undefined ? undefined : (JSON.parse(line) as Banner)
    },
    START_DEADLINE,
  )
}
