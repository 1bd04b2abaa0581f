/**
 * The HTTP port of the sandbox: the one that was asked for, else 8025 or the next free one.
 *
 * Throws ProcessExit 75 when the wanted port is taken, or when no port is free. A program that takes the port between
 * this look and the start makes the start fail, with the same exit code.
 */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { errorCode, EXIT, ProcessExit } from '../base/errors.ts'
import { SANDBOX_ADDRESS } from './sandbox-settings.ts'

const DEFAULT_PORT = 8025
const PORTS_TRIED = 100

export async function choosePort(wanted: number | null): Promise<number> {
  const ports = wanted === null ? Array.from({ length: PORTS_TRIED }, (_, step) => DEFAULT_PORT + step) : [wanted]
  for (const port of ports) if (await isFree(port)) return port
  const what = wanted === null ? `ports ${DEFAULT_PORT} to ${DEFAULT_PORT + PORTS_TRIED - 1} are` : `port ${wanted} is`
  throw new ProcessExit(EXIT.tryAgain, `posthorn: ${what} taken by another program; choose one with --port`)
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    // `once` rejects when the listener reports an error first.
    const listening = once(server, 'listening')
    server.listen(port, SANDBOX_ADDRESS)
    await listening
  } catch (thrown) {
    // EACCES: a port below 1024 for an ordinary user.
    if (['EADDRINUSE', 'EACCES'].includes(errorCode(thrown))) return false
    throw thrown
  }
  server.close()
  await once(server, 'close')
  return true
}
