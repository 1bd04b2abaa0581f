/**
 * unbound as a validating resolver on loopback, over zones that Knot's kzonesign signed: secure, insecure, or bogus.
 */
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { promises as dns } from 'node:dns'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { missingPrograms } from './programs.ts'
import { freePort } from './serve-process.ts'
import { until } from './until.ts'

export interface SignedZone {
  /** Its apex, below `test`. */
  name: string
  /** Lines of a zone file; names are relative to the apex. */
  records: readonly string[]
  /** `unsigned`: nobody promises a signature, so it is insecure. */
  state: 'signed' | 'unsigned'
  /** Changes the signed file, so that what it changes is bogus. */
  spoil?: (text: string) => string
}

export interface ValidatingUnbound {
  /** `IP:port`. */
  server: string
  port: number
  /** Replaces all zones; nothing of the old ones is remembered. */
  publish(zones: readonly SignedZone[]): Promise<void>
  stop(): Promise<void>
}

/** What it takes, as `missingPrograms` reads it. */
export const SIGNING_PROGRAMS = { unbound: ['unbound'], kzonesign: ['knot-dnssecutils'], openssl: ['openssl'] }

export function missingForSigning(): string | false {
  return missingPrograms(SIGNING_PROGRAMS)
}

export async function startValidatingUnbound(zones: readonly SignedZone[]): Promise<ValidatingUnbound> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-signed-'))
  const port = await freePort()
  const write = (all: readonly SignedZone[]): void => {
    const made = all.map((zone) => ({ ...zone, ...signZone(folder, zone) }))
    writeFileSync(join(folder, 'unbound.conf'), settings(folder, port, made))
  }
  write([marker('started'), ...zones])
  const child = spawn('/usr/sbin/unbound', ['-d', '-c', join(folder, 'unbound.conf')], {
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  const resolver = new dns.Resolver({ timeout: 500, tries: 1 })
  resolver.setServers([`127.0.0.1:${port}`])
  const answers = (name: string): Promise<boolean> =>
    resolver.resolveTxt(name).then(
      () => true,
      () => false,
    )
  await until('unbound answers', () => answers('started.test'))
  return {
    server: `127.0.0.1:${port}`,
    port,
    async publish(all) {
      const round = `round-${process.hrtime.bigint()}`
      write([marker(round), ...all])
      // unbound reads its files again on SIGHUP, and forgets all answers.
      child.kill('SIGHUP')
      await until('unbound serves the new zones', () => answers(`${round}.test`))
    },
    async stop() {
      child.kill()
      await once(child, 'exit')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function marker(name: string): SignedZone {
  return { name: `${name}.test`, records: ['@ 300 IN TXT there'], state: 'unsigned' }
}

interface MadeZone {
  file: string
  /** DNSKEY record that is trusted, or null. */
  anchor: string | null
}

function signZone(folder: string, { name, records, state, spoil = (text) => text }: SignedZone): MadeZone {
  const file = join(folder, `${name}.zone`)
  const start = [
    `$ORIGIN ${name}.`,
    '@ 300 IN SOA ns admin 1 3600 600 86400 60',
    '@ 300 IN NS ns',
    'ns 300 IN A 127.0.0.1',
  ]
  writeFileSync(file, `${[...start, ...records].join('\n')}\n`)
  if (state === 'unsigned') return { file, anchor: null }
  const work = join(folder, `${name}.signing`)
  mkdirSync(join(work, 'keys'), { recursive: true })
  writeFileSync(
    join(work, 'knot.conf'),
    [
      'database:',
      `  storage: "${join(work, 'keys')}"`,
      'policy:',
      '  - id: quick',
      '    algorithm: ecdsap256sha256',
      'zone:',
      `  - domain: ${name}`,
      `    file: "${file}"`,
      '    dnssec-signing: on',
      '    dnssec-policy: quick',
      '',
    ].join('\n'),
  )
  execFileSync('kzonesign', ['-c', join(work, 'knot.conf'), '-o', work, name], { stdio: 'ignore' })
  const signedFile = join(work, `${name}.zone`)
  const signed = readFileSync(signedFile, 'utf8')
  writeFileSync(signedFile, spoil(signed))
  // The key-signing key: flags 257.
  const key = /\sDNSKEY\s+(257 .+)$/m.exec(signed)?.[1]
  if (key === undefined) throw new Error(`kzonesign made no key for ${name}`)
  return { file: signedFile, anchor: `${name}. DNSKEY ${key}` }
}

function settings(folder: string, port: number, zones: readonly (SignedZone & MadeZone)[]): string {
  const server = [
    'interface: 127.0.0.1',
    `port: ${port}`,
    'username: ""',
    'chroot: ""',
    `directory: "${folder}"`,
    'pidfile: ""',
    'use-syslog: no',
    'logfile: "unbound.log"',
    'do-daemonize: no',
    'module-config: "validator iterator"',
    'local-zone: "." static',
    ...zones.map(({ name }) => `local-zone: "${name}." transparent`),
    ...zones.flatMap(({ anchor }) => (anchor === null ? [] : [`trust-anchor: "${anchor}"`])),
  ]
  const section = (name: string, lines: readonly string[]): string =>
    `${name}:\n${lines.map((line) => `  ${line}\n`).join('')}`
  const upstream = ['for-upstream: yes', 'for-downstream: no', 'fallback-enabled: no']
  const parts = zones.map(({ name, file }) =>
    section('auth-zone', [`name: "${name}."`, `zonefile: "${file}"`, ...upstream]),
  )
  return section('server', server) + parts.join('') + section('remote-control', ['control-enable: no'])
}
