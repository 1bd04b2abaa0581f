/**
 * Debian's Postfix as a receiving mail server of its own: configuration, queue and mailboxes in one folder, listening
 * on one loopback address, delivering into Maildirs. Needs root, as Postfix does.
 */
import { execFileSync } from 'node:child_process'
import {
  chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

export interface PostfixOptions {
  address: string
  port: number
  /** Domain it is the final destination of, and the local parts it knows. */
  domain: string
  mailboxes: readonly string[]
  /** Takes unknown recipients and bounces them afterwards, to this server; left out: it refuses them at RCPT. */
  bouncesTo?: { address: string; port: number }
  /** Lines of main.cf over the usual ones. */
  settings?: Record<string, string>
  /** Further addresses it listens on, each with what is different there. */
  listeners?: readonly { address: string; settings: Record<string, string> }[]
}

export interface Postfix {
  /** The mails in a mailbox, whole, as stored. */
  mails(mailbox: string): Buffer[]
  /** Postfix's own log, for a failing test. */
  log(): string
  stop(): void
}

/** nobody on Debian: owns the mailboxes. */
const MAIL_USER = 65_534
const POSTFIX = '/usr/sbin/postfix'

export function startPostfix(options: PostfixOptions): Postfix {
  const folder = mkdtempSync(join(tmpdir(), 'posthorn-postfix-'))
  // Postfix's own user must reach its queue.
  chmodSync(folder, 0o755)
  const [etc, spool, data, mail] = ['etc', 'spool', 'data', 'mail'].map((name) => {
    const path = join(folder, name)
    mkdirSync(path)
    return path
  }) as [string, string, string, string]
  chownSync(data, idOf('-u', 'postfix'), idOf('-g', 'postfix'))
  chownSync(mail, MAIL_USER, MAIL_USER)
  const logFile = join(folder, 'mail.log')
  writeFileSync(join(etc, 'main.cf'), mainSettings({ ...options, folder, spool, data, mail, logFile }))
  writeFileSync(join(etc, 'master.cf'), services(options))
  const known = options.mailboxes.map((mailbox) => `${mailbox}@${options.domain} ${mailbox}/\n`)
  writeFileSync(join(etc, 'mailboxes'), known.join(''))
  execFileSync(POSTFIX, ['-c', etc, 'start'], { stdio: 'pipe' })
  return {
    mails(mailbox) {
      const arrived = join(mail, mailbox, 'new')
      return existsSync(arrived) ? readdirSync(arrived).map((name) => readFileSync(join(arrived, name))) : []
    },
    log: () => (existsSync(logFile) ? readFileSync(logFile, 'utf8') : ''),
    stop() {
      execFileSync(POSTFIX, ['-c', etc, 'stop'], { stdio: 'pipe' })
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

type Places = Record<'folder' | 'spool' | 'data' | 'mail' | 'logFile', string>

function mainSettings(where: PostfixOptions & Places): string {
  return Object.entries({
    compatibility_level: '3.6',
    queue_directory: where.spool,
    data_directory: where.data,
    maillog_file: where.logFile,
    maillog_file_prefixes: where.folder,
    myhostname: `mx.${where.domain}`,
    mydestination: '',
    // Only interface addresses count here; the listener's own address stands in master.cf.
    inet_interfaces: '127.0.0.1',
    inet_protocols: 'ipv4',
    mynetworks: '',
    smtpd_peername_lookup: 'no',
    virtual_mailbox_domains: where.domain,
    virtual_mailbox_base: where.mail,
    virtual_mailbox_maps: `texthash:${join(where.folder, 'etc', 'mailboxes')}`,
    virtual_uid_maps: `static:${MAIL_USER}`,
    virtual_gid_maps: `static:${MAIL_USER}`,
    smtpd_recipient_restrictions: 'reject_unauth_destination',
    alias_maps: '',
    local_recipient_maps: '',
    biff: 'no',
    ...(where.bouncesTo === undefined
      ? {}
      : { smtpd_reject_unlisted_recipient: 'no', relayhost: `[${where.bouncesTo.address}]:${where.bouncesTo.port}` }),
    ...where.settings,
  }).map(([name, value]) => `${name} = ${value}\n`).join('')
}

/** The services that receive and deliver locally; no chroot, so that the folder is all they need. */
function services({ address, port, listeners = [] }: PostfixOptions): string {
  return [
    ...[{ address, settings: {} }, ...listeners].flatMap(({ address, settings }) => [
      `${address}:${port} inet n - n - - smtpd`,
      ...Object.entries(settings).map(([name, value]) => `  -o { ${name} = ${value} }`),
    ]),
    'pickup unix n - n 60 1 pickup',
    'cleanup unix n - n - 0 cleanup',
    'qmgr unix n - n 300 1 qmgr',
    'rewrite unix - - n - - trivial-rewrite',
    'bounce unix - - n - 0 bounce',
    'defer unix - - n - 0 bounce',
    'trace unix - - n - 0 bounce',
    'proxymap unix - - n - - proxymap',
    'tlsmgr unix - - n 1000? 1 tlsmgr',
    'error unix - - n - - error',
    'retry unix - - n - - error',
    'smtp unix - - n - - smtp',
    'virtual unix - n n - - virtual',
    'anvil unix - - n - 1 anvil',
    'postlog unix-dgram n - n - 1 postlogd',
    '',
  ].join('\n')
}

function idOf(flag: '-u' | '-g', user: string): number {
  return Number(execFileSync('id', [flag, user], { encoding: 'utf8' }))
}
