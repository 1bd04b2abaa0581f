/**
 * A port of the sandbox: the one that was asked for, else the usual or the next free one. ProcessExit 75 when the
 * wanted one is taken or none is free.
 */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { errorCode, EXIT, ProcessExit } from '../base/errors.ts'
import { SANDBOX_ADDRESS } from './sandbox-settings.ts'

interface PortChoice {
  /** null: any, the usual one first. */
  wanted: number | null
  usual: number
  /** The option that asks for one. */
  option: string
}

/** sandbox/README.md "The sandbox": the usual ports. */
export const HTTP_PORT = 8025
export const SUBMISSION_PORT = 1025
/** The capture server takes another one by itself when this is taken. */
export const CAPTURE_PORT = 1026
export const INBOUND_PORT = 1027
const PORTS_TRIED = 100

/** `taken`: what other listeners of this start will use. */
export async function choosePort(choice: PortChoice, taken: readonly number[] = []): Promise<number> {
  const { wanted, usual, option } = choice
  const ports = wanted === null ? Array.from({ length: PORTS_TRIED }, (_, step) => usual + step) : [wanted]
  for (const port of ports) if (!taken.includes(port) && (await isFree(port))) return port
  const what = wanted === null ? `ports ${usual} to ${usual + PORTS_TRIED - 1} are` : `port ${wanted} is`
  throw new ProcessExit(EXIT.tryAgain, `sternpost: ${what} taken by another program; choose one with ${option}`)
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
