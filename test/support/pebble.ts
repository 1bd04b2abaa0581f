/**
 * Pebble, the ACME server that Let's Encrypt tests clients with: on loopback, with names from a zone of the test, proofs
 * at a port of the test, and a share of good nonces refused.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Agent, request } from 'undici'
import { missingPrograms } from './programs.ts'
import { freePort } from './serve-process.ts'
import { createTestAuthority } from './test-authority.ts'
import { until } from './until.ts'

export const skipWithoutPebble = missingPrograms({ pebble: ['pebble'], openssl: ['openssl'] })

const NONCES_REFUSED_PERCENT = '15'

export interface Pebble {
  directory: string
  /** PEM file that vouches for its own door. */
  caFile: string
  /** The same, PEM. */
  authority: string
  /** As somebody who trusts its door. */
  fetch(address: string): Promise<string>
  /** Whoever trusts it trusts what Pebble issues: PEM, made anew at each start. */
  issuer(): Promise<string>
  /** That clients have placed since its start. */
  orders(): number
  /** By its serial number, as hex. */
  isRevoked(serial: string): Promise<boolean>
  start(): Promise<void>
  stop(): Promise<void>
}

export interface PebbleOptions {
  /** Where the names of the test lead to, for http-01. */
  httpPort: number
  /** For tls-alpn-01. */
  tlsPort?: number
  /** `127.0.0.1:port` */
  dnsServer: string
}

export async function startPebble(
  t: { teardown(end: () => unknown): void },
  { httpPort, tlsPort, dnsServer }: PebbleOptions,
): Promise<Pebble> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-pebble-'))
  const authority = createTestAuthority('Door of Pebble')
  const { chain, key } = authority.issue(['localhost'])
  const [port, managementPort] = [await freePort(), await freePort()]
  const files = { certificate: join(folder, 'door.pem'), privateKey: join(folder, 'door.key') }
  writeFileSync(files.certificate, chain)
  writeFileSync(files.privateKey, key)
  const pebble = {
    ...files,
    listenAddress: `127.0.0.1:${port}`,
    managementListenAddress: `127.0.0.1:${managementPort}`,
    httpPort,
    tlsPort: tlsPort ?? (await freePort()),
    ocspResponderURL: '',
    externalAccountBindingRequired: false,
  }
  const configuration = join(folder, 'pebble.json')
  writeFileSync(configuration, JSON.stringify({ pebble }))
  const dispatcher = new Agent({ connect: { ca: authority.certificate } })
  const fetchText = async (address: string): Promise<string> => (await request(address, { dispatcher })).body.text()
  const directory = `https://localhost:${port}/dir`
  let child: ChildProcess | undefined
  let orders = 0

  const stop = async (): Promise<void> => {
    if (child === undefined || child.exitCode !== null) return
    const ended = once(child, 'exit')
    child.kill('SIGKILL')
    await ended
    child = undefined
  }
  const start = async (): Promise<void> => {
    child = spawn('pebble', ['-config', configuration, '-dnsserver', dnsServer], {
      stdio: ['ignore', 'pipe', 'ignore'],
      env: { ...process.env, PEBBLE_VA_NOSLEEP: '1', PEBBLE_WFE_NONCEREJECT: NONCES_REFUSED_PERCENT },
    })
    child.stdout?.setEncoding('utf8').on('data', (text: string) => {
      for (const [, count] of text.matchAll(/There are now (\d+) orders in the db/g)) orders = Number(count)
    })
    await until('pebble answers', () => fetchText(directory).catch(() => null))
  }
  t.teardown(async () => {
    await stop()
    await dispatcher.close()
    authority.close()
    rmSync(folder, { recursive: true, force: true })
  })
  await start()
  return {
    directory,
    caFile: authority.file,
    authority: authority.certificate,
    fetch: fetchText,
    issuer: () => fetchText(`https://localhost:${managementPort}/roots/0`),
    orders: () => orders,
    async isRevoked(serial) {
      const status = await fetchText(`https://localhost:${managementPort}/cert-status-by-serial/${serial}`)
      return /"Status":\s*"Revoked"/i.test(status)
    },
    start,
    stop,
  }
}
