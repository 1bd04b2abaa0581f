/**
 * A server as a child of the bench, with its files in a folder of its own: started, waited for, ended with the folder.
 * Throws when it ends before it listens.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { until } from '../../test/support/until.ts'

export interface ChildServer {
  processId: number
  stop(): Promise<void>
}

export interface ChildServerOptions {
  program: string
  words: readonly string[]
  /** Removed at the end. */
  folder: string
  isListening: () => boolean | Promise<boolean>
}

export async function startChildServer(options: ChildServerOptions): Promise<ChildServer> {
  const { program, words, folder, isListening } = options
  const child = spawn(program, words, { stdio: ['ignore', 'ignore', 'inherit'] })
  const ended = once(child, 'exit')
  const stop = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill()
      await ended
    }
    rmSync(folder, { recursive: true, force: true })
  }
  try {
    await until(`${program} listens`, () => {
      if (child.exitCode !== null) throw new Error(`${program} ended with ${child.exitCode}`)
      return isListening()
    })
  } catch (thrown) {
    await stop()
    throw thrown
  }
  return { processId: child.pid ?? Number.NaN, stop }
}
