/**
 * A server as `setup` leaves it once its DNS is published, in a network namespace: addresses on its interface, all its
 * doors on their usual ports, a DNS server, and the mail hosts of three large providers. All of it can be broken.
 */
import { execFileSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { once } from 'node:events'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { reverseName } from '../../src/egress/ips/ip-facts.ts'
import { startRunningAppliance, type RunningAppliance } from './running-appliance.ts'
import { createTestAuthority } from './test-authority.ts'
import { startZone, type Zone, type ZoneRecords, type ZoneServer } from './zone.ts'

export const FIRST = '203.0.113.10'
export const SECOND = '203.0.113.11'
export const IPV6 = '2001:db8::10'
export const PROVIDER_HOST = '198.51.100.25'
const PROVIDER_HOST_IPV6 = '2001:db8:1::25'
export const HOSTNAME = 'mail.sternpost.test'
/** Sending domains, with links at their own names. */
export const DOMAINS = ['dkim.test', 'spf.test', 'bounce.test', 'dmarc.test']
/** Of the certificate. */
export const TLS_NAMES = [HOSTNAME, `track.${HOSTNAME}`, ...DOMAINS.map((domain) => `t.${domain}`)]
const SMTP = 25

export interface DoctorWorld {
  zone: ZoneServer
  appliance: RunningAppliance
  /** Of certificate and key. */
  tls: { certificate: string; key: string }
  /** The IPs of the pool: without IPv6 where the kernel has none. */
  ips: { address: string; hostname: string; warmed: boolean }[]
  backups: string
  mailHosts: MailHosts
  close(): Promise<void>
}

export function ip(...words: string[]): void {
  execFileSync('ip', words, { stdio: ['ignore', 'ignore', 'inherit'] })
}

export async function startDoctorWorld(): Promise<DoctorWorld> {
  const hasIpv6 = giveAddresses()
  const ips = [
    { address: FIRST, hostname: HOSTNAME, warmed: true },
    { address: SECOND, hostname: 'mta2.sternpost.test', warmed: true },
    ...(hasIpv6 ? [{ address: IPV6, hostname: 'mta6.sternpost.test', warmed: true }] : []),
  ]
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-doctor-'))
  const tls = { certificate: join(folder, 'cert.pem'), key: join(folder, 'key.pem') }
  const authority = createTestAuthority()
  const { chain, key } = authority.intermediate('Test Intermediate').issue(TLS_NAMES)
  writeFileSync(tls.certificate, chain)
  writeFileSync(tls.key, key, { mode: 0o600 })
  authority.close()
  const backups = join(folder, 'backups')
  mkdirSync(backups)
  const zone = await startZone(goodZone(hasIpv6))
  const mailHosts = await startMailHosts(hasIpv6)
  const appliance = await startRunningAppliance({
    dnsServer: zone.server,
    deliveryPort: SMTP,
    pools: { version: 1, default_pool: 'default', pools: { default: { ips } } },
    settings: settingsOf(tls, backups, hasIpv6),
  })
  return {
    zone,
    appliance,
    tls,
    ips,
    backups,
    mailHosts,
    async close() {
      await appliance.stop()
      await zone.close()
      mailHosts.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** False: this kernel has no IPv6. */
function giveAddresses(): boolean {
  ip('link', 'set', 'lo', 'up')
  for (const address of [FIRST, SECOND, PROVIDER_HOST]) ip('addr', 'add', `${address}/32`, 'dev', 'lo')
  // Rules of a test can come before the one for addresses of this machine.
  ip('rule', 'add', 'pref', '100', 'lookup', 'local')
  ip('rule', 'del', 'pref', '0')
  try {
    for (const address of [IPV6, PROVIDER_HOST_IPV6]) ip('-6', 'addr', 'add', `${address}/128`, 'dev', 'lo')
    return true
  } catch {
    return false
  }
}

function settingsOf(
  { certificate, key }: DoctorWorld['tls'],
  backups: string,
  hasIpv6: boolean,
): Record<string, Record<string, unknown>> {
  const inbound = [{ address: FIRST, port: SMTP }, ...(hasIpv6 ? [{ address: IPV6, port: SMTP }] : [])]
  return {
    listen: {
      http: [{ address: FIRST, port: 443, tls: true, serve: ['api', 'tracking'] }],
      submission: [
        { address: FIRST, port: 587, tls: 'starttls' },
        { address: FIRST, port: 465, tls: 'implicit' },
      ],
      inbound,
    },
    tls: { certificates: [{ cert_file: certificate, key_file: key }] },
    delivery: { allow_private_addresses: false },
    webhooks: { allow_http: false, allow_private_addresses: false },
    backup: { dir: backups },
  }
}

export const SPF_OF_ALL = `v=spf1 ip4:${FIRST} ip4:${SECOND} ip6:${IPV6} -all`

function goodZone(hasIpv6: boolean): Zone {
  const own = { A: [FIRST], ...(hasIpv6 ? { AAAA: [IPV6] } : {}) }
  return {
    [HOSTNAME]: own,
    [`track.${HOSTNAME}`]: own,
    [`rp.${HOSTNAME}`]: { TXT: [`v=spf1 include:spf.${HOSTNAME} -all`], MX: [`10 ${HOSTNAME}`] },
    [`spf.${HOSTNAME}`]: { TXT: [SPF_OF_ALL] },
    'mta2.sternpost.test': { A: [SECOND] },
    'mta6.sternpost.test': { AAAA: [IPV6] },
    [reverseName(FIRST)]: { PTR: [HOSTNAME] },
    [reverseName(SECOND)]: { PTR: ['mta2.sternpost.test'] },
    [reverseName(IPV6)]: { PTR: ['mta6.sternpost.test'] },
    'mx.provider.test': { A: [PROVIDER_HOST], AAAA: [PROVIDER_HOST_IPV6] },
    ...Object.fromEntries(
      ['gmail.com', 'outlook.com', 'yahoo.com'].map((domain): [string, ZoneRecords] => [
        domain,
        { MX: ['10 mx.provider.test'] },
      ]),
    ),
  }
}

/** The mail hosts of the providers. */
export interface MailHosts {
  /** From now on they see this address, whoever comes; null: the real one. */
  see(address: string | null): void
  /** From then on nobody answers at their port. */
  close(): void
}

async function startMailHosts(hasIpv6: boolean): Promise<MailHosts> {
  let seen: string | null = null
  const servers = [PROVIDER_HOST, ...(hasIpv6 ? [PROVIDER_HOST_IPV6] : [])].map((address) =>
    createServer((socket) => {
      socket.on('error', () => socket.destroy())
      socket.on('data', (line) => {
        if (line.includes('EHLO')) socket.write(`250 mx.provider.test, [${seen ?? socket.remoteAddress}]\r\n`)
        if (line.includes('QUIT')) socket.end('221 bye\r\n')
      })
      socket.write('220-mx.provider.test\r\n220 ESMTP\r\n')
    }).listen(SMTP, address),
  )
  await Promise.all(servers.map((server) => once(server, 'listening')))
  return {
    see(address) {
      seen = address
    },
    close: () => servers.forEach((server) => server.close()),
  }
}
