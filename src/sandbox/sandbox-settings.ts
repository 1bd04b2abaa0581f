/**
 * What the sandbox sets over the configuration files, whatever they say (sandbox/README.md "The sandbox"): dotted paths
 * of sternpost.yaml with values as they are written there. Pure.
 */
import { join } from 'node:path'

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
    'listen.admin_socket': join(dataFolder, 'admin.sock'),
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

export function masterKeyFile(dataFolder: string): string {
  return join(dataFolder, 'master.key')
}
