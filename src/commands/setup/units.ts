/** The systemd units: turned on and started, and off again when the server does not come up and did not run before. */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'
import { MINUTE, SECOND } from '../../base/clock.ts'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { callServer } from '../shared/api-client.ts'
import { PRODUCTION_FOLDER } from '../shared/flag-values.ts'
import type { ServerAddress } from '../shared/server-address.ts'

/** The service manager of this machine. */
export interface Systemd {
  /** The units read their configuration there. */
  serves(folder: string): boolean
  /** Runs a program of systemd's; never rejects. */
  run(program: 'systemctl' | 'journalctl', words: string[]): Promise<{ isDone: boolean; text: string }>
  /** Milliseconds for a started server to answer. */
  answersWithin: number
}

/** Flags that lead a printed command to the server of a folder. */
export function serverOf(folder: string): { config?: string } {
  return folder === PRODUCTION_FOLDER ? {} : { config: folder }
}
const RUNNING_SYSTEMD = '/run/systemd/system'
const UNITS = ['sternpost.socket', 'sternpost.service']
const START_MILLISECONDS = 2 * MINUTE
const LOOK_EVERY = SECOND / 2
const SHOWN_LINES = '20'

export const systemd: Systemd = {
  serves: (folder) => folder === PRODUCTION_FOLDER && existsSync(RUNNING_SYSTEMD),
  answersWithin: MINUTE,
  run: (program, words) =>
    new Promise((resolve) => {
      execFile(program, words, { timeout: START_MILLISECONDS }, (error, stdout, stderr) =>
        resolve({ isDone: error === null, text: stdout + stderr }),
      )
    }),
}

/** False: they were on already. Throws ProcessExit 1 with the last lines of the log. */
export async function startUnits(server: ServerAddress, { run, answersWithin }: Systemd): Promise<boolean> {
  const is = async (what: string): Promise<boolean> => (await run('systemctl', [what, 'sternpost.service'])).isDone
  const [wasActive, wasEnabled] = [await is('is-active'), await is('is-enabled')]
  if (wasActive && (await isAnswering(server))) {
    await run('systemctl', ['enable', ...UNITS])
    return false
  }
  // After some failed starts systemd refuses the next one.
  await run('systemctl', ['reset-failed', ...UNITS])
  const started = await run('systemctl', ['enable', '--now', ...UNITS])
  if (started.isDone && (await beginsToAnswer(server, answersWithin))) return true
  const units = UNITS.flatMap((unit) => ['-u', unit])
  const log = await run('journalctl', [...units, '-n', SHOWN_LINES, '--no-pager'])
  if (!wasActive) await run('systemctl', [...(wasEnabled ? ['stop'] : ['disable', '--now']), ...UNITS])
  const reason = started.isDone ? 'it does not answer' : started.text.trim()
  throw new ProcessExit(EXIT.failed, `sternpost: the server did not start: ${reason}\n${log.text}`)
}

/** Somebody is there on the admin socket, even if it takes no mail now. */
export async function isAnswering(server: ServerAddress): Promise<boolean> {
  try {
    await callServer(server, 'GET /v1/health')
    return true
  } catch (thrown) {
    if (thrown instanceof ProcessExit) return thrown.exitCode !== EXIT.unreachable
    throw thrown
  }
}

async function beginsToAnswer(server: ServerAddress, within: number): Promise<boolean> {
  const until = performance.now() + within
  while (performance.now() < until) {
    if (await isAnswering(server)) return true
    await wait(LOOK_EVERY)
  }
  return false
}
