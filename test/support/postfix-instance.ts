/**
 * An instance of Debian's Postfix with configuration, queue and log in one folder, without chroot, so that the folder
 * is all it needs; everything else as it ships. Needs root, as Postfix does.
 */
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface PostfixInstance {
  /** Holds its number once it runs. */
  readonly processIdFile: string
  /** Postfix's own log. */
  log(): string
  /** Removes the folder too. */
  stop(): void
}

export interface PostfixInstanceOptions {
  /** Lines of main.cf over the usual ones. */
  settings: Record<string, string>
  /** Lines of master.cf: the addresses it listens on. */
  listeners: readonly string[]
}

const POSTFIX = '/usr/sbin/postfix'
/** What a relay and a server with mailboxes have in common, of Debian's master.cf; none runs before it is needed. */
const SERVICES = [
  'pickup unix n - n 60 1 pickup',
  'cleanup unix n - n - 0 cleanup',
  'qmgr unix n - n 300 1 qmgr',
  'rewrite unix - - n - - trivial-rewrite',
  'bounce unix - - n - 0 bounce',
  'defer unix - - n - 0 bounce',
  'trace unix - - n - 0 bounce',
  'proxymap unix - - n - - proxymap',
  'tlsmgr unix - - n 1000? 1 tlsmgr',
  'smtp unix - - n - - smtp',
  'relay unix - - n - - smtp',
  'error unix - - n - - error',
  'retry unix - - n - - error',
  'virtual unix - n n - - virtual',
  'anvil unix - - n - 1 anvil',
  'scache unix - - n - 1 scache',
  'postlog unix-dgram n - n - 1 postlogd',
]

/** Makes the folder, to which the caller may add files of its own before it is started. */
export function makePostfixFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-postfix-'))
  // Postfix's own user must reach its queue.
  chmodSync(folder, 0o755)
  for (const name of ['etc', 'spool', 'data']) mkdirSync(join(folder, name))
  chownSync(join(folder, 'data'), idOf('-u'), idOf('-g'))
  return folder
}

export function startPostfixIn(folder: string, { settings, listeners }: PostfixInstanceOptions): PostfixInstance {
  const [etc, spool, logFile] = [join(folder, 'etc'), join(folder, 'spool'), join(folder, 'mail.log')]
  const all = {
    compatibility_level: '3.6',
    queue_directory: spool,
    data_directory: join(folder, 'data'),
    maillog_file: logFile,
    maillog_file_prefixes: folder,
    mydestination: '',
    // Only interface addresses count here; another loopback address stands in master.cf.
    inet_interfaces: '127.0.0.1',
    inet_protocols: 'ipv4',
    smtpd_peername_lookup: 'no',
    alias_maps: '',
    biff: 'no',
    ...settings,
  }
  writeFileSync(
    join(etc, 'main.cf'),
    Object.entries(all)
      .map(([name, value]) => `${name} = ${value}\n`)
      .join(''),
  )
  writeFileSync(join(etc, 'master.cf'), [...listeners, ...SERVICES, ''].join('\n'))
  execFileSync(POSTFIX, ['-c', etc, 'start'], { stdio: 'pipe' })
  return {
    processIdFile: join(spool, 'pid', 'master.pid'),
    log: () => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : ''),
    stop() {
      execFileSync(POSTFIX, ['-c', etc, 'stop'], { stdio: 'pipe' })
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

function idOf(flag: '-u' | '-g'): number {
  return Number(execFileSync('id', [flag, 'postfix'], { encoding: 'utf8' }))
}
