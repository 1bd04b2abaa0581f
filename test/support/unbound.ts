/**
 * unbound as a real DNS server on loopback that answers from given records under `test.` alone.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { promises as dns } from 'node:dns'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { freePort } from './serve-process.ts'
import { until } from './until.ts'

export interface DnsRecordLine {
  name: string
  type: 'A' | 'AAAA' | 'MX' | 'TXT' | 'CNAME'
  /** A TXT value is bytes, one character each. */
  value: string
}

/** Names that do not answer as they should, with all below them. */
export interface DnsTrouble {
  servfail?: readonly string[]
  /** No answer ever comes. */
  silent?: readonly string[]
}

export interface Unbound {
  /** `IP:port`. */
  server: string
  port: number
  /** Replaces all records, and what is in trouble. */
  publish(records: readonly DnsRecordLine[], trouble?: DnsTrouble): Promise<void>
  /** As `publish`, with a piece of a zone file in front, as a program printed it. */
  publishText(text: string, records: readonly DnsRecordLine[]): Promise<void>
  stop(): Promise<void>
}

/** RFC 1035 §3.3: one character string of a TXT record. */
const MOST_STRING_BYTES = 255

export async function startUnbound(records: readonly DnsRecordLine[], givenPort?: number): Promise<Unbound> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-unbound-'))
  const file = join(folder, 'unbound.conf')
  const port = givenPort ?? (await freePort())
  const zoneFile = join(folder, 'test.zone')
  const write = (text: string, marker: string, trouble: DnsTrouble = {}): void => {
    writeFileSync(file, settings({ folder, port, zoneFile, trouble }))
    writeFileSync(zoneFile, `${text}\n${zoneLine({ name: marker, type: 'TXT', value: 'published' })}\n`)
  }
  write(zoneText(records), 'started.test')
  const child = spawn('/usr/sbin/unbound', ['-d', '-c', file], { stdio: ['ignore', 'ignore', 'inherit'] })
  const resolver = new dns.Resolver({ timeout: 500, tries: 1 })
  resolver.setServers([`127.0.0.1:${port}`])
  const answers = (name: string): Promise<boolean> =>
    resolver.resolveTxt(name).then(
      () => true,
      () => false,
    )
  await until('unbound answers', () => answers('started.test'))
  const serve = async (text: string, trouble?: DnsTrouble): Promise<void> => {
    const marker = `round-${process.hrtime.bigint()}.test`
    write(text, marker, trouble)
    // unbound reads its files again on SIGHUP.
    child.kill('SIGHUP')
    await until('unbound serves the new records', () => answers(marker))
  }
  return {
    server: `127.0.0.1:${port}`,
    port,
    publish: (lines, trouble) => serve(zoneText(lines), trouble),
    publishText: (text, lines) => serve(`${zoneText(lines)}${text}`),
    async stop() {
      child.kill()
      await once(child, 'exit')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

interface SettingsOptions {
  folder: string
  port: number
  zoneFile: string
  trouble: DnsTrouble
}

function settings({ folder, port, zoneFile, trouble }: SettingsOptions): string {
  const { servfail = [], silent = [] } = trouble
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
    'module-config: "iterator"',
    'local-zone: "." static',
    'local-zone: "test." transparent',
    ...silent.map((name) => `local-zone: "${name}." always_deny`),
  ]
  const zone = ['name: "test."', `zonefile: "${zoneFile}"`, 'for-upstream: no', 'for-downstream: yes']
  // A zone that waits for its first transfer, from where nobody listens, answers SERVFAIL.
  const broken = (name: string): string[] => [
    `name: "${name}."`,
    'primary: 127.0.0.1@9',
    'for-upstream: no',
    'for-downstream: yes',
    'fallback-enabled: no',
  ]
  const section = (name: string, lines: readonly string[]): string =>
    `${name}:\n${lines.map((line) => `  ${line}\n`).join('')}`
  const zones = [zone, ...servfail.map(broken)].map((lines) => section('auth-zone', lines))
  return section('server', server) + zones.join('') + section('remote-control', ['control-enable: no'])
}

function zoneText(records: readonly DnsRecordLine[]): string {
  const start = '@ 300 IN SOA ns.test. admin.test. 1 3600 600 86400 60\n@ 300 IN NS ns.test.\n'
  return `$ORIGIN test.\n${start}${records.map((record) => `${zoneLine(record)}\n`).join('')}`
}

/** A line of a zone file. */
export function zoneLine({ name, type, value }: DnsRecordLine): string {
  if (type === 'A' || type === 'AAAA') return `${name}. 300 IN ${type} ${value}`
  if (type !== 'TXT') return `${name}. 300 IN ${type} ${value}.`
  const strings: string[] = []
  for (let start = 0; start < value.length; start += MOST_STRING_BYTES) {
    strings.push(`"${escaped(value.slice(start, start + MOST_STRING_BYTES))}"`)
  }
  return `${name}. 300 IN TXT ${strings.join(' ')}`
}

/** RFC 1035 §5.1: what is special inside quotes, and bytes that are no printable ASCII, as `\DDD`. */
function escaped(text: string): string {
  // A quote, a backslash, or anything outside of space to tilde.
  return text.replace(/["\\]|[^ -~]/g, (byte) => `\\${String(byte.charCodeAt(0)).padStart(3, '0')}`)
}
