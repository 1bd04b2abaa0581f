/**
 * Debian's Exim and OpenSMTPD as receiving mail servers: with given settings, or such that they take every recipient of
 * their domain and bounce it afterwards. They conflict as packages, so `unpack-mail-servers` puts each into a root of
 * its own, where they are run by chroot; that needs root.
 */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { basename, join } from 'node:path'
import { until } from './until.ts'

export interface BouncingServerOptions {
  address: string
  port: number
  domain: string
  /** Where its bounces go. */
  bouncesTo: { address: string; port: number }
}

export interface BouncingServer {
  /** What it said, for a failing test. */
  log(): string
  stop(): Promise<void>
}

const ROOTS = process.env['STERNPOST_MAIL_SERVER_ROOTS'] ?? '/var/tmp/sternpost-mail-servers'
/** As in the roots' own passwd files. */
const EXIM_USER = 1001
const SMTPD_QUEUE_USER = 1003

/** False when the roots are there and may be used (tap's "do not skip"), else a sentence that says what is missing. */
export function missingMailServers(): string | false {
  if (process.getuid?.() !== 0) return 'needs root, for chroot'
  const isThere = ['exim', 'opensmtpd'].every((name) => existsSync(join(ROOTS, name, 'complete')))
  return isThere ? false : 'needs Exim and OpenSMTPD: run test/support/unpack-mail-servers'
}

export function startExim(options: BouncingServerOptions): Promise<BouncingServer> {
  return startEximWith(options, ({ inside }) => eximSettings(options, inside))
}

export function startOpenSmtpd(options: BouncingServerOptions): Promise<BouncingServer> {
  return startOpenSmtpdWith(options, () => openSmtpdSettings(options))
}

/** `configure` gives the text of exim.conf; all that it puts into the folder becomes Exim's. */
export function startEximWith(listens: Listener, configure: (place: Place) => string): Promise<BouncingServer> {
  const place = makePlace(join(ROOTS, 'exim'))
  mkdirSync(join(place.outside, 'spool'))
  writeFileSync(join(place.outside, 'exim.conf'), configure(place))
  for (const name of readdirSync(place.outside)) {
    // A configuration that its user could change is refused.
    if (name !== 'exim.conf') chownSync(join(place.outside, name), EXIM_USER, EXIM_USER)
  }
  return start(listens, place, ['/usr/sbin/exim4', '-C', join(place.inside, 'exim.conf'), '-bdf', '-q1s', '-d-all+acl'])
}

/** `configure` gives the text of smtpd.conf. */
export function startOpenSmtpdWith(listens: Listener, configure: (place: Place) => string): Promise<BouncingServer> {
  // Its queue has a fixed place in the root, so that each one needs a root of its own.
  const root = mkdtempSync(join(ROOTS, 'opensmtpd-'))
  execFileSync('cp', ['-al', `${join(ROOTS, 'opensmtpd')}/.`, root])
  const place = makePlace(root)
  const spool = join(root, 'var', 'spool', 'smtpd')
  rmSync(spool, { recursive: true, force: true })
  for (const [name, owner, mode] of [
    ['', 0, 0o711],
    ['queue', SMTPD_QUEUE_USER, 0o700],
    ['offline', 0, 0o770],
    ['purge', SMTPD_QUEUE_USER, 0o700],
  ] as const) {
    const folder = join(spool, name)
    mkdirSync(folder)
    chownSync(folder, owner, name === 'offline' ? SMTPD_QUEUE_USER : 0)
    chmodSync(folder, mode)
  }
  writeFileSync(join(place.outside, 'smtpd.conf'), configure(place))
  return start(listens, { ...place, toRemove: root }, ['/usr/sbin/smtpd', '-d', '-f', join(place.inside, 'smtpd.conf')])
}

/** Where it answers once it runs. */
export type Listener = Pick<BouncingServerOptions, 'address' | 'port'>

export interface Place {
  root: string
  /** The same folder, seen from here and from inside the root. */
  outside: string
  inside: string
  /** Of no use once the server has ended. */
  toRemove: string
}

function makePlace(root: string): Place {
  const outside = mkdtempSync(join(root, 'tmp', 'test-'))
  chmodSync(outside, 0o755)
  return { root, outside, inside: join('/tmp', basename(outside)), toRemove: outside }
}

async function start({ address, port }: Listener, place: Place, words: string[]): Promise<BouncingServer> {
  const said: string[] = []
  // A process group of its own: both servers are several processes.
  const server = spawn('chroot', [place.root, ...words], { detached: true, stdio: ['ignore', 'pipe', 'pipe'] })
  for (const stream of [server.stdout, server.stderr]) stream.on('data', (bytes: Buffer) => said.push(String(bytes)))
  const stop = async (): Promise<void> => {
    await end(server)
    rmSync(place.toRemove, { recursive: true, force: true })
  }
  try {
    await until(`${words[0]} listens`, () => answers(address, port))
  } catch (thrown) {
    await stop()
    throw new Error(`${words[0]} did not start: ${said.join('')}`, { cause: thrown })
  }
  return { log: () => said.join(''), stop }
}

async function end(server: ChildProcess): Promise<void> {
  if (server.pid === undefined || server.exitCode !== null) return
  const ended = new Promise((resolve) => server.once('exit', resolve))
  process.kill(-server.pid, 'SIGTERM')
  await ended
}

function answers(address: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port })
    socket.once('data', () => {
      socket.end('QUIT\r\n')
      resolve(true)
    })
    socket.once('error', () => resolve(false))
  })
}

function eximSettings({ address, port, domain, bouncesTo }: BouncingServerOptions, folder: string): string {
  return `
primary_hostname = mx.${domain}
spool_directory = ${folder}/spool
log_file_path = ${folder}/spool/%slog
exim_user = Debian-exim
exim_group = Debian-exim
never_users =
local_interfaces = ${address}
daemon_smtp_ports = ${port}
pid_file_path = ${folder}/spool/exim.pid
tls_advertise_hosts =
host_lookup =
rfc1413_query_timeout = 0s
acl_smtp_rcpt = check_rcpt
queue_only = false
begin acl
check_rcpt:
  accept domains = ${domain}
  deny
begin routers
full:
  driver = redirect
  domains = ${domain}
  local_parts = full
  allow_fail
  data = :fail: 452 4.2.2 mailbox is over quota
unknown:
  driver = redirect
  domains = ${domain}
  allow_fail
  data = :fail: 550 5.1.1 no such mailbox here
back:
  driver = manualroute
  transport = back
  route_list = * ${bouncesTo.address}
  self = send
begin transports
back:
  driver = smtp
  port = ${bouncesTo.port}
  allow_localhost
begin retry
* * F,1h,5s
`
}

function openSmtpdSettings({ address, port, domain, bouncesTo }: BouncingServerOptions): string {
  return `
listen on ${address} port ${port} hostname mx.${domain}
table people { "@" = nobody }
action refuse mda "/bin/sh -c 'echo no such mailbox here; exit 67'" virtual <people>
action back relay host smtp://${bouncesTo.address}:${bouncesTo.port}
match from any for domain "${domain}" action refuse
match for any action back
`
}
