/**
 * The appliance as a process that lives through simulated days: its clock is moved by the test, it can be killed at any
 * moment of real time, and goes on where time is. `appliance-on-file-clock.ts` is the other side.
 */
import { fork, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createReadStream, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { DAY } from '../../src/base/clock.ts'
import type { Asked, Told } from './appliance-on-file-clock.ts'
import { writeAhead } from './file-clock.ts'
import { freePort, writeConfiguration, type ServeOptions } from './serve-process.ts'

export interface SimulatedAppliance {
  baseUrl: string
  dataFolder: string
  /** Simulated time; a UTC midnight has just passed at the start. */
  now(): number
  createKey(): Promise<string>
  /** So much time passes at once; resolves when nothing is under way any more. */
  leap(milliseconds: number): Promise<void>
  /** The jobs of retention, as they come every ten minutes. */
  retain(): Promise<void>
  /** The same, but the process gets SIGKILL after so many real milliseconds, and is started again. */
  leapIntoKill(milliseconds: number, realMilliseconds: number): Promise<void>
  /** SIGKILL and a new start. Without a wire: delivery threads answer by themselves. */
  restart(options: { hasWire: boolean }): Promise<void>
  /** Lines of its log that say somebody must act, or that a message waited for nothing. */
  complaints(): Promise<string[]>
  /** Ends it and removes its folder. */
  remove(): Promise<void>
}

const ENTRY = fileURLToPath(new URL('./appliance-on-file-clock.ts', import.meta.url))
const NO_WIRE = new URL('./no-wire.ts', import.meta.url).href
const COMPILE_CACHE = fileURLToPath(new URL('../../node_modules/.cache/sternpost', import.meta.url))
/** After midnight. */
const BEGINS_AT = 1_000
/** Of the log, in a failure. */
const LAST_CHARACTERS = 2_000

export interface SimulatedOptions extends ServeOptions {
  hasWire?: boolean
}

export async function startSimulatedAppliance(options: SimulatedOptions): Promise<SimulatedAppliance> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-'))
  const httpPort = await freePort()
  writeConfiguration(folder, { ...options, httpPort, metricsPort: await freePort() })
  const clockFile = join(folder, 'clock')
  let ahead = DAY - (Date.now() % DAY) + BEGINS_AT
  let hasWire = options.hasWire ?? true
  let child: ChildProcess | undefined

  async function start(): Promise<void> {
    const started = fork(ENTRY, [folder, clockFile], {
      execArgv: hasWire ? [] : ['--import', NO_WIRE],
      env: { ...process.env, NODE_COMPILE_CACHE: COMPILE_CACHE },
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    })
    child = started
    await answerOf(started)
  }

  async function answerOf(asked: ChildProcess): Promise<Told> {
    const told = await new Promise<Told | undefined>((resolve) => {
      const end = (answer?: Told): void => {
        asked.off('message', end)
        asked.off('exit', ended)
        resolve(answer)
      }
      const ended = (): void => end()
      asked.on('message', end)
      asked.on('exit', ended)
    })
    if (told !== undefined && told.kind !== 'failed') return told
    const log = readFileSync(join(folder, 'sternpost.log'), 'utf8').slice(-LAST_CHARACTERS)
    throw new Error(`the appliance ended or failed: ${told?.text ?? ''}\n${log}`)
  }

  async function ask(asked: Asked): Promise<Told> {
    if (child === undefined) throw new Error('the appliance does not run')
    child.send(asked)
    return answerOf(child)
  }

  async function kill(): Promise<void> {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
  }

  function move(milliseconds: number): void {
    ahead += milliseconds
    writeAhead(clockFile, ahead)
  }

  move(0)
  await start()
  return {
    baseUrl: `http://127.0.0.1:${httpPort}`,
    dataFolder: join(folder, 'data'),
    now: () => Date.now() + ahead,
    async createKey() {
      const told = await ask('key')
      return told.kind === 'key' ? told.key : ''
    },
    async leap(milliseconds) {
      move(milliseconds)
      await ask('look')
    },
    async retain() {
      await ask('retain')
    },
    async leapIntoKill(milliseconds, realMilliseconds) {
      move(milliseconds)
      child?.send('look' satisfies Asked)
      await sleep(realMilliseconds)
      await kill()
      await start()
      await ask('look')
    },
    async restart(next) {
      hasWire = next.hasWire
      await kill()
      await start()
      await ask('look')
    },
    async complaints() {
      const complaints: string[] = []
      // Thirty days of log are longer than a string may be.
      for await (const line of createInterface({ input: createReadStream(join(folder, 'sternpost.log')) })) {
        if (line.includes('"level":"error"') || line.includes('scheduler.missed_wake')) complaints.push(line)
      }
      return complaints
    },
    async remove() {
      await kill()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}
