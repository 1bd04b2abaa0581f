/**
 * Debian's Postfix as a receiving mail server of its own: configuration, queue and mailboxes in one folder, listening
 * on one loopback address, delivering into Maildirs. Needs root, as Postfix does.
 */
import { chownSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { makePostfixFolder, startPostfixIn } from './postfix-instance.ts'

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

export function startPostfix(options: PostfixOptions): Postfix {
  const folder = makePostfixFolder()
  const mail = join(folder, 'mail')
  mkdirSync(mail)
  chownSync(mail, MAIL_USER, MAIL_USER)
  const known = options.mailboxes.map((mailbox) => `${mailbox}@${options.domain} ${mailbox}/\n`)
  writeFileSync(join(folder, 'etc', 'mailboxes'), known.join(''))
  const { log, stop } = startPostfixIn(folder, {
    settings: mainSettings(options, folder),
    listeners: listenersOf(options),
  })
  return {
    mails(mailbox) {
      const arrived = join(mail, mailbox, 'new')
      return existsSync(arrived) ? readdirSync(arrived).map((name) => readFileSync(join(arrived, name))) : []
    },
    log,
    stop,
  }
}

function mainSettings({ domain, bouncesTo, settings }: PostfixOptions, folder: string): Record<string, string> {
  return {
    myhostname: `mx.${domain}`,
    mynetworks: '',
    virtual_mailbox_domains: domain,
    virtual_mailbox_base: join(folder, 'mail'),
    virtual_mailbox_maps: `texthash:${join(folder, 'etc', 'mailboxes')}`,
    virtual_uid_maps: `static:${MAIL_USER}`,
    virtual_gid_maps: `static:${MAIL_USER}`,
    smtpd_recipient_restrictions: 'reject_unauth_destination',
    local_recipient_maps: '',
    ...(bouncesTo === undefined
      ? {}
      : { smtpd_reject_unlisted_recipient: 'no', relayhost: `[${bouncesTo.address}]:${bouncesTo.port}` }),
    ...settings,
  }
}

function listenersOf({ address, port, listeners = [] }: PostfixOptions): string[] {
  return [{ address, settings: {} }, ...listeners].flatMap(({ address, settings }) => [
    `${address}:${port} inet n - n - - smtpd`,
    ...Object.entries(settings).map(([name, value]) => `  -o { ${name} = ${value} }`),
  ])
}
