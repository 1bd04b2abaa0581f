/**
 * The whole appliance inside the test's own process, on a clock that the test moves: real configuration files, HTTP,
 * DNS, SMTP and SQLite, as `serve-process` has them, and its parts within reach.
 */
import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { startAppliance, type Appliance } from '../../src/appliance.ts'
import { createLogger } from '../../src/base/logger.ts'
import { loadConfiguration } from '../../src/config/load-configuration.ts'
import { apiClient, type ApiClient } from './api-client.ts'
import { leapingClock, type LeapingClock } from './leaping-clock.ts'
import { freePort, writeConfiguration, type ServeOptions } from './serve-process.ts'

const COMMAND = fileURLToPath(new URL('../../scripts/sternpost', import.meta.url))
const SHIPPED_FOLDER = fileURLToPath(new URL('../../config', import.meta.url))

export interface EndedCommand {
  code: number
  stdout: string
  stderr: string
}

export interface RunningAppliance {
  parts: Appliance
  clock: LeapingClock
  /** With a key that may do everything. */
  api: ApiClient
  baseUrl: string
  apiKey: string
  databaseFolder: string
  /** Of its configuration files. */
  folder: string
  /** The lines of the log so far, as written. */
  log: readonly string[]
  /** Runs `sternpost` with these words, on the admin socket. */
  command(...words: string[]): Promise<EndedCommand>
  /** Stops it and removes its folder. */
  stop(): Promise<void>
}

export async function startRunningAppliance(options: ServeOptions): Promise<RunningAppliance> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  const [httpPort, metricsPort] = [await freePort(), await freePort()]
  writeConfiguration(folder, { ...options, httpPort, metricsPort })
  const log: string[] = []
  const clock = leapingClock()
  const load = () => loadConfiguration({ folder, shippedFolder: SHIPPED_FOLDER })
  const parts = await startAppliance({
    configuration: load(),
    loadAgain: load,
    logger: createLogger({ level: 'debug', write: (line) => void log.push(line) }),
    clock,
    onFatal: (reason) => {
      throw reason
    },
  })
  const created = await parts.apiKeys.create({
    name: 'test',
    mode: 'live',
    scopes: ['admin'],
    domains: [],
    allowedIps: [],
    expiresAt: null,
  })
  const baseUrl = `http://127.0.0.1:${httpPort}`
  return {
    parts,
    clock,
    baseUrl,
    log,
    folder,
    api: apiClient(baseUrl, created.key),
    apiKey: created.key,
    databaseFolder: join(folder, 'data'),
    command: (...words) =>
      new Promise((resolve) => {
        execFile('sh', [COMMAND, ...words, '--config', folder], (error, stdout, stderr) =>
          resolve({ code: Number(error?.code ?? 0), stdout, stderr }),
        )
      }),
    async stop() {
      await parts.stop()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
