/**
 * What the sandbox sets over the configuration files, whatever they say (sandbox/README.md "The sandbox"): dotted paths
 * of sternpost.yaml with values as they are written there; and the ports that it takes.
 */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { errorCode, EXIT, ProcessExit } from '../base/errors.ts'

/** sandbox/README.md "The sandbox": the usual ports. */
export const HTTP_PORT = 8025
export const SUBMISSION_PORT = 1025
/** The capture server takes another one by itself when this is taken. */
export const CAPTURE_PORT = 1026
export const INBOUND_PORT = 1027
const PORTS_TRIED = 100
export const SANDBOX_ADDRESS = '127.0.0.1'

interface SandboxPlace {
  /** HTTP: API, `/dev`, tracking, console. */
  port: number
  /** SMTP submission. */
  submissionPort: number
  /** Where the capture server listens. */
  capturePort: number
  /** Bounces and complaints. */
  inboundPort: number
  /** Absolute. */
  dataFolder: string
}

export function sandboxOverrides(place: SandboxPlace): Record<string, unknown> {
  const { port, submissionPort, capturePort, inboundPort, dataFolder } = place
  return {
    'listen.http': [{ address: SANDBOX_ADDRESS, port, tls: false, serve: ['api', 'tracking', 'console'] }],
    'listen.submission': [{ address: SANDBOX_ADDRESS, port: submissionPort, tls: 'none' }],
    'listen.inbound': [{ address: SANDBOX_ADDRESS, port: inboundPort }],
    'listen.metrics': null,
    'listen.admin_socket': adminSocketFile(dataFolder),
    data_dir: dataFolder,
    'secrets.master_key': { file: masterKeyFile(dataFolder) },
    public_url: sandboxBaseUrl(port),
    'delivery.port': capturePort,
    'delivery.allow_private_addresses': true,
    'webhooks.allow_http': true,
    'webhooks.allow_private_addresses': true,
    'health.blocklists': [],
    'backup.schedule': null,
  }
}

/** Without `/v1`, which is part of the API's paths. */
export function sandboxBaseUrl(port: number): string {
  return `http://${SANDBOX_ADDRESS}:${port}`
}

export function adminSocketFile(dataFolder: string): string {
  return join(dataFolder, 'admin.sock')
}

export function masterKeyFile(dataFolder: string): string {
  return join(dataFolder, 'master.key')
}

interface PortChoice {
  /** null: any, the usual one first. */
  wanted: number | null
  usual: number
  /** The option that asks for one. */
  option: string
}

/**
 * The port that was asked for, else the usual or the next free one. `taken`: what other listeners of this start will
 * use. ProcessExit 75 when the wanted one is taken or none is free.
 */
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
