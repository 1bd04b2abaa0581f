/**
 * Postfix, Exim, OpenSMTPD and a scripted server, each on the same set of addresses with the same differences between
 * them: without and with STARTTLS, without an extension, for small mail alone, and behind a proxy that ends connections
 * badly. Where a server cannot be set up so, it has no address for it.
 */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BUSY, GREYLISTED, startAdmissionPolicy } from './admission-policy.ts'
import { startKeepingSink } from './keeping-sink.ts'
import { startPostfix } from './postfix.ts'
import { scriptedMx, type ScriptedMx, type ScriptedMxOptions } from './scripted-mx.ts'
import { startSmtpProxy, type ProxyRules, type SmtpProxy } from './smtp-proxy.ts'
import type { IssuedCertificate } from './test-authority.ts'
import { startEximWith, startOpenSmtpdWith } from './unpacked-servers.ts'

/** The doors of every server, in the order of the last part of their addresses, from 1. */
export const DOORS = [
  'plain',
  'tls',
  'no-pipelining',
  'no-8bitmime',
  'small',
  'half-close',
  'early-close',
  'no-quit',
] as const
export type Door = (typeof DOORS)[number]
const PROXIED = ['half-close', 'early-close', 'no-quit'] as const

export const SERVERS = ['postfix', 'exim', 'opensmtpd', 'scripted'] as const
export type ServerName = (typeof SERVERS)[number]

/** Doors that it cannot be given. */
export const LACKING: Record<ServerName, readonly Door[]> = {
  postfix: [],
  // Its setting holds for all addresses.
  exim: ['no-8bitmime'],
  // It always announces 8BITMIME; and version 6.8 of Debian 12 loses its private key under OpenSSL 3.
  opensmtpd: ['no-8bitmime', 'tls'],
  scripted: [],
}
/** Larger mail is refused at the door for small mail; OpenSMTPD has one limit for all. */
export const SMALL_BYTES = 40_000

export function addressOf(server: ServerName, door: Door): string {
  return `127.0.${21 + SERVERS.indexOf(server)}.${1 + DOORS.indexOf(door)}`
}

export interface InteropServers {
  /** Mail that a server has taken, as it keeps or passes it on. */
  mails(server: ServerName): Buffer[]
  /** What a server said, for a failing test. */
  log(server: ServerName): string
  /** What is between the world and a server's doors that end connections badly. */
  proxies: Map<string, SmtpProxy>
  close(): Promise<void>
}

interface Running {
  mails(): Buffer[]
  log(): string
  stop(): Promise<void>
}

interface Options {
  port: number
  certificate: IssuedCertificate
}

export async function startInteropServers(options: Options): Promise<InteropServers> {
  const stops: (() => Promise<void>)[] = []
  const close = async (): Promise<void> => {
    for (const stop of stops.toReversed()) await stop()
  }
  try {
    return { ...(await startAll(options, stops)), close }
  } catch (thrown) {
    await close()
    throw thrown
  }
}

async function startAll(options: Options, stops: (() => Promise<void>)[]): Promise<Omit<InteropServers, 'close'>> {
  const policy = await startAdmissionPolicy()
  stops.push(() => policy.close())
  const servers = new Map<ServerName, Running>()
  for (const server of SERVERS) {
    const running = await RUN[server](options, policy.port)
    servers.set(server, running)
    stops.push(() => running.stop())
  }
  const proxies = new Map<string, SmtpProxy>()
  for (const server of SERVERS) {
    for (const door of PROXIED) {
      const place = (each: Door): { address: string; port: number } => ({
        address: addressOf(server, each),
        port: options.port,
      })
      const proxy = await startSmtpProxy(place(door), place('plain'), BAD_ENDS[door]())
      proxies.set(`${door} ${server}`, proxy)
      stops.push(() => proxy.close())
    }
  }
  return {
    proxies,
    mails: (server) => servers.get(server)?.mails() ?? [],
    log: (server) => servers.get(server)?.log() ?? '',
  }
}

const RUN: Record<ServerName, (options: Options, policyPort: number) => Promise<Running>> = {
  postfix: runPostfix,
  exim: runExim,
  opensmtpd: runOpenSmtpd,
  scripted: runScripted,
}

const BAD_ENDS: Record<(typeof PROXIED)[number], () => ProxyRules> = {
  'half-close': () => ({ afterDot: (connection) => connection.endToClient() }),
  // The first connection ends for the client while its EHLO is on its way.
  'early-close': () => {
    let isFirst = true
    return {
      fromClient(line, connection) {
        if (isFirst) connection.endToClient()
        isFirst = false
        return line
      },
    }
  },
  // Nobody answers it, and nobody closes.
  'no-quit': () => ({ fromClient: (line) => (/^QUIT/i.test(line) ? null : line) }),
}

async function runPostfix({ port, certificate }: Options, policyPort: number): Promise<Running> {
  const at = (door: Door): string => addressOf('postfix', door)
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-interop-'))
  const file = join(folder, 'mx.pem')
  writeFileSync(file, `${certificate.key}${certificate.chain}`, { mode: 0o600 })
  const postfix = startPostfix({
    address: at('plain'),
    port,
    domain: 'postfix.test',
    mailboxes: [],
    settings: {
      virtual_mailbox_domains: 'static:all',
      virtual_mailbox_maps: 'static:box/',
      smtpd_tls_chain_files: file,
      smtpd_tls_security_level: 'none',
      smtpd_tls_loglevel: '1',
      smtpd_recipient_restrictions: `check_policy_service inet:127.0.0.1:${policyPort}, reject_unauth_destination`,
    },
    listeners: [
      { address: at('tls'), settings: { smtpd_tls_security_level: 'may' } },
      { address: at('no-pipelining'), settings: { smtpd_discard_ehlo_keywords: 'pipelining' } },
      { address: at('no-8bitmime'), settings: { smtpd_discard_ehlo_keywords: '8bitmime' } },
      { address: at('small'), settings: { message_size_limit: String(SMALL_BYTES) } },
    ],
  })
  return {
    mails: () => postfix.mails('box'),
    log: postfix.log,
    async stop() {
      postfix.stop()
      rmSync(folder, { recursive: true })
    },
  }
}

async function runExim({ port, certificate }: Options, policyPort: number): Promise<Running> {
  const at = (door: Door): string => addressOf('exim', door)
  const isAt = (door: Door, yes: string, no: string): string =>
    `\${if eq{$received_ip_address}{${at(door)}}{${yes}}{${no}}}`
  let mailFolder = ''
  const exim = await startEximWith({ address: at('plain'), port }, ({ outside, inside }) => {
    mailFolder = join(outside, 'mail')
    mkdirSync(mailFolder)
    writeFileSync(join(outside, 'cert.pem'), certificate.chain)
    writeFileSync(join(outside, 'key.pem'), certificate.key, { mode: 0o600 })
    return `
primary_hostname = mx.exim.test
spool_directory = ${inside}/spool
log_file_path = ${inside}/spool/%slog
exim_user = Debian-exim
exim_group = Debian-exim
never_users =
local_interfaces = ${(['plain', 'tls', 'no-pipelining', 'small'] as const).map(at).join(' : ')}
daemon_smtp_ports = ${port}
pid_file_path = ${inside}/spool/exim.pid
tls_advertise_hosts = ${isAt('tls', '*', '')}
tls_certificate = ${inside}/cert.pem
tls_privatekey = ${inside}/key.pem
pipelining_advertise_hosts = ${isAt('no-pipelining', '', '*')}
message_size_limit = ${isAt('small', String(SMALL_BYTES), '10M')}
smtputf8_advertise_hosts = *
host_lookup =
rfc1413_query_timeout = 0s
acl_smtp_rcpt = check_rcpt
begin acl
check_rcpt:
  warn set acl_m0 = \${readsocket{inet:127.0.0.1:${policyPort}}{recipient=$local_part@$domain\\n\\n}{5s}{}}
  defer condition = \${if match{$acl_m0}{^action=4}}
        message = \${sg{$acl_m0}{action=|\\n}{}}
  accept
begin routers
take:
  driver = accept
  transport = box
begin transports
box:
  driver = appendfile
  directory = ${inside}/mail
  maildir_format
  user = Debian-exim
`
  })
  const arrived = (): string => join(mailFolder, 'new')
  return { ...exim, mails: () => (existsSync(arrived()) ? filesIn(arrived()) : []) }
}

function filesIn(folder: string): Buffer[] {
  return readdirSync(folder).map((name) => readFileSync(join(folder, name)))
}

async function runOpenSmtpd({ port }: Options): Promise<Running> {
  const sink = await startKeepingSink()
  const at = (door: Door): string => addressOf('opensmtpd', door)
  const doors = ['plain', 'no-pipelining', 'small'] as const
  const smtpd = await startOpenSmtpdWith({ address: at('plain'), port }, ({ root, outside, inside }) => {
    // Filters are started by a shell.
    copyFileSync('/bin/sh', join(root, 'bin', 'sh'))
    writeFileSync(join(outside, 'admission'), OPENSMTPD_FILTER)
    chmodSync(join(outside, 'admission'), 0o755)
    return `
smtp max-message-size "${SMALL_BYTES}"
filter admission proc-exec "${inside}/admission"
${doors.map((door) => `listen on ${at(door)} port ${port} hostname mx.opensmtpd.test filter admission`).join('\n')}
action pass relay host smtp://127.0.0.1:${sink.port}
match from any for any action pass
`
  })
  return {
    log: smtpd.log,
    mails: () => sink.mails.map(({ bytes }) => bytes),
    async stop() {
      await smtpd.stop()
      await sink.close()
    },
  }
}

/** As `admission-policy`, in OpenSMTPD's filter protocol (smtpd-filters(7)). */
const OPENSMTPD_FILTER = `#!/bin/sh
set -f
seen=' '
while IFS= read -r line; do
  case $line in
    'config|ready')
      echo 'register|filter|smtp-in|rcpt-to'
      echo 'register|ready' ;;
    'filter|'*)
      IFS='|'
      set -- $line
      unset IFS
      answer=proceed
      case "$seen" in
        *" $8 "*) ;;
        *) case "$8" in
            grey@*) answer='reject|${GREYLISTED}' ;;
            busy@*) answer='disconnect|${BUSY}' ;;
          esac ;;
      esac
      seen="$seen$8 "
      echo "filter-result|$6|$7|$answer" ;;
  esac
done
`

async function runScripted({ port, certificate }: Options): Promise<Running> {
  const ALL = ['PIPELINING', 'SIZE 10485760', '8BITMIME', 'SMTPUTF8', 'ENHANCEDSTATUSCODES']
  const without = (name: string): string[] => ALL.filter((extension) => extension !== name)
  const seen = new Set<string>()
  const rcpt = (line: string): string => {
    const recipient = /<(.*)>/.exec(line)?.[1] ?? ''
    const isFirst = !seen.has(recipient)
    seen.add(recipient)
    if (isFirst && recipient.startsWith('grey@')) return GREYLISTED
    return isFirst && recipient.startsWith('busy@') ? BUSY : '250 2.1.5 ok'
  }
  const options: Partial<Record<Door, ScriptedMxOptions>> = {
    plain: { extensions: ALL, script: { rcpt } },
    tls: { extensions: ALL, tls: { key: certificate.key, cert: certificate.chain } },
    'no-pipelining': { extensions: without('PIPELINING') },
    'no-8bitmime': { extensions: without('8BITMIME') },
    small: { extensions: [...without('SIZE 10485760'), `SIZE ${SMALL_BYTES}`] },
  }
  const servers: ScriptedMx[] = []
  for (const [door, of] of Object.entries(options)) {
    servers.push(await scriptedMx({ ...of, address: addressOf('scripted', door as Door), port }))
  }
  return {
    mails: () => servers.flatMap(({ messages }) => messages.map(({ bytes }) => bytes)),
    log: () => servers.map(({ address, connections }) => `${address} ${JSON.stringify(connections)}`).join('\n'),
    stop: async () => void (await Promise.all(servers.map((server) => server.close()))),
  }
}
