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
  type: 'A' | 'MX' | 'TXT' | 'CNAME'
  value: string
}

export interface Unbound {
  /** `IP:port`. */
  server: string
  port: number
  /** Replaces all records. */
  publish(records: readonly DnsRecordLine[]): Promise<void>
  stop(): Promise<void>
}

/** RFC 1035 §3.3: one character string of a TXT record. */
const MOST_STRING_BYTES = 255

export async function startUnbound(records: readonly DnsRecordLine[]): Promise<Unbound> {
  const folder = mkdtempSync(join(tmpdir(), 'posthorn-unbound-'))
  const file = join(folder, 'unbound.conf')
  const port = await freePort()
  const zoneFile = join(folder, 'test.zone')
  writeFileSync(file, settings(folder, port, zoneFile))
  const write = (lines: readonly DnsRecordLine[], marker: string): void =>
    writeFileSync(zoneFile, zoneText([...lines, { name: marker, type: 'TXT', value: 'published' }]))
  write(records, 'started.test')
  const child = spawn('/usr/sbin/unbound', ['-d', '-c', file], { stdio: ['ignore', 'ignore', 'inherit'] })
  const resolver = new dns.Resolver({ timeout: 500, tries: 1 })
  resolver.setServers([`127.0.0.1:${port}`])
  const answers = (name: string): Promise<boolean> => resolver.resolveTxt(name).then(() => true, () => false)
  await until('unbound answers', () => answers('started.test'))
  return {
    server: `127.0.0.1:${port}`,
    port,
    async publish(lines) {
      const marker = `round-${process.hrtime.bigint()}.test`
      write(lines, marker)
      // unbound reads its file again on SIGHUP.
      child.kill('SIGHUP')
      await until('unbound serves the new records', () => answers(marker))
    },
    async stop() {
      child.kill()
      await once(child, 'exit')
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function settings(folder: string, port: number, zoneFile: string): string {
  const server = [
    'interface: 127.0.0.1', `port: ${port}`, 'username: ""', 'chroot: ""', `directory: "${folder}"`, 'pidfile: ""',
    'use-syslog: no', 'logfile: "unbound.log"', 'do-daemonize: no', 'module-config: "iterator"', 'local-zone: "." static',
    'local-zone: "test." transparent',
  ]
  const zone = ['name: "test."', `zonefile: "${zoneFile}"`, 'for-upstream: no', 'for-downstream: yes']
  const section = (name: string, lines: readonly string[]): string =>
    `${name}:\n${lines.map((line) => `  ${line}\n`).join('')}`
  return section('server', server) + section('auth-zone', zone) + section('remote-control', ['control-enable: no'])
}

function zoneText(records: readonly DnsRecordLine[]): string {
  const start = '@ 300 IN SOA ns.test. admin.test. 1 3600 600 86400 60\n@ 300 IN NS ns.test.\n'
  return `$ORIGIN test.\n${start}${records.map((record) => `${zoneLine(record)}\n`).join('')}`
}

function zoneLine({ name, type, value }: DnsRecordLine): string {
  if (type === 'A') return `${name}. 300 IN A ${value}`
  if (type !== 'TXT') return `${name}. 300 IN ${type} ${value}.`
  const strings: string[] = []
  for (let start = 0; start < value.length; start += MOST_STRING_BYTES) {
    strings.push(`"${value.slice(start, start + MOST_STRING_BYTES)}"`)
  }
  return `${name}. 300 IN TXT ${strings.join(' ')}`
}
