/**
 * Reports that Debian's Postfix, Exim and OpenSMTPD write when the next server refuses what they relay: each names the
 * right recipient, is of the right kind, calls the dead address hard, and touches no bystander.
 */
import t from 'tap'
import { judgeReported } from '../../src/mail/report/judge-report.ts'
import { readReport } from '../../src/mail/report/read-report.ts'
import type { ReportReading } from '../../src/mail/report/report-reading.ts'
import { smtpClient } from '../inbound/smtp-client.ts'
import { shippedClassifier } from '../support/corpus-score.ts'
import { startPostfix } from '../support/postfix.ts'
import { missingPrograms } from '../support/programs.ts'
import { freePort } from '../support/serve-process.ts'
import { startSmtpLineServer, type SmtpLineServer } from '../support/smtp-line-server.ts'
import { missingMailServers, startEximWith, startOpenSmtpdWith } from '../support/unpacked-servers.ts'
import { until } from '../support/until.ts'

const DOMAIN = 'next.test'
/** What the next server says to RCPT; every other address is taken. */
const REPLIES: Record<string, string> = {
  gone: '550 5.1.1 <gone@next.test>: User unknown',
  plain: '550 No such user',
  big: '552 5.3.4 Message too big for system',
  policy: '550 5.7.1 Message refused by policy',
  lines: '550-5.1.1 The account that you tried to reach\r\n550-5.1.1 does not exist.\r\n550 5.1.1 See the help.',
  full: '552 5.2.2 Mailbox full',
  slow: '450 4.2.0 Try again later',
}

/** Recipients of a mail, and what its last report says: address, kind and type. */
const CASES: readonly [recipients: string[], address: string, kind: string, type: string][] = [
  [['gone'], 'gone', 'bounce', 'hard'],
  [['plain'], 'plain', 'bounce', 'hard'],
  [['big'], 'big', 'bounce', 'soft'],
  [['policy'], 'policy', 'bounce', 'block'],
  [['lines'], 'lines', 'bounce', 'hard'],
  [['full'], 'full', 'bounce', 'soft'],
  [['slow'], 'slow', 'bounce', 'soft'],
  [['fine', 'gone'], 'gone', 'bounce', 'hard'],
  [['full', 'gone'], 'gone', 'bounce', 'hard'],
  [['alias'], 'alias', 'bounce', 'hard'],
]

interface Relay {
  log(): string
  stop(): unknown
}
type Start = (port: number, next: number) => Relay | Promise<Relay>

const SERVERS: Record<string, Start> = {
  postfix: (port, next) =>
    startPostfix({
      address: '127.0.0.1',
      port,
      domain: 'relay.test',
      mailboxes: [],
      settings: {
        mynetworks: '127.0.0.0/8',
        relayhost: `[127.0.0.1]:${next}`,
        smtpd_recipient_restrictions: 'permit_mynetworks, reject',
        virtual_alias_maps: `inline:{ alias@${DOMAIN}=gone@${DOMAIN} }`,
        delay_warning_time: '1s',
        maximal_queue_lifetime: '6s',
        bounce_queue_lifetime: '60s',
        queue_run_delay: '1s',
        minimal_backoff_time: '1s',
        maximal_backoff_time: '2s',
      },
    }),
  exim: (port, next) => startEximWith({ address: '127.0.0.1', port }, ({ inside }) => eximSettings(port, next, inside)),
  opensmtpd: (port, next) =>
    startOpenSmtpdWith({ address: '127.0.0.1', port }, () =>
      [
        `listen on 127.0.0.1 port ${port} hostname relay.test`,
        'queue ttl 6s',
        `table aliases { "alias@${DOMAIN}" = "gone@${DOMAIN}" }`,
        'action expanded expand-only virtual <aliases>',
        'bounce warn-interval 2s',
        `action next relay host smtp://127.0.0.1:${next}`,
        `match from any for rcpt-to "alias@${DOMAIN}" action expanded`,
        'match from any for any action next\n',
      ].join('\n'),
    ),
}

/** OpenSMTPD names the forwarded address alone; which one was mailed is known by the return path (test/inbound). */
const namedBy = (server: string, local: string): string =>
  `${server === 'opensmtpd' && local === 'alias' ? 'gone' : local}@${DOMAIN}`

/** OpenSMTPD looks at what is too old some minutes later. */
const MOST_WAITED: Record<string, number> = { opensmtpd: 600_000 }
/** The lifetime of a message has to pass. */
const IS_FULL = process.env['TEST_SCALE'] === 'full'

const skip = missingPrograms({ postfix: ['postfix'] }) || missingMailServers()
const classify = shippedClassifier()

t.setTimeout(1_200_000)

for (const [name, start] of Object.entries(SERVERS)) {
  t.test(`reports of ${name}`, { skip }, async (t) => {
    const mails: { to: string; reading: ReportReading }[] = []
    const next = await startNextServer((to, text) =>
      mails.push({ to, reading: readReport(Buffer.from(text, 'latin1')) }),
    )
    t.teardown(() => next.close())
    const port = await freePort()
    const relay = await start(port, next.port)
    t.teardown(() => relay.stop())
    const cases = CASES.filter(([, local]) => IS_FULL || local !== 'slow')
    for (const [index, [recipients]] of cases.entries()) {
      const client = await smtpClient({ port })
      await client.greet()
      const addresses = recipients.map((local) => `${local}@${DOMAIN}`)
      const text = `From: shop@from.test\r\nSubject: Order ${index}\r\nMessage-ID: <${index}@from.test>\r\n\r\nThank you`
      t.match(await client.mail(addresses, text, `case${index}@from.test`), /^250/)
      client.destroy()
    }
    const readingsOf = (index: number): ReportReading[] =>
      mails.filter(({ to }) => to === `case${index}@from.test`).map(({ reading }) => reading)
    for (const [index, [recipients, local, kind, type]] of cases.entries()) {
      const what = `${recipients.join()} by ${name}`
      const mostWaited = local === 'slow' ? (MOST_WAITED[name] ?? 20_000) : 20_000
      await until(
        `the report about ${what}`,
        () => readingsOf(index).some((one) => one.kind === kind),
        mostWaited,
      ).catch((thrown: Error) =>
        t.fail(`${thrown.message}\n${JSON.stringify(readingsOf(index))}\n${relay.log().slice(-4_000)}`),
      )
      const all = readingsOf(index)
        .filter((one) => one.kind === kind)
        .flatMap((one) => one.recipients)
      const judged = all.map((one) => [one.address, judgeReported(one, classify, null)] as const)
      const named = namedBy(name, local)
      const judgement = judged.find(([address]) => address === named)?.[1]
      // With the stage, 5.7.1 is about the recipient, but not told how.
      const types = type === 'block' ? ['block', 'undetermined'] : [type]
      t.ok(types.includes(judgement?.bounceType ?? ''), `${what} is ${type}`)
      const bystanders = judged.filter(([address]) => address !== named)
      t.same(
        bystanders.filter(([, other]) => (other?.suppress ?? 'never') !== 'never'),
        [],
        `no bystander of ${what}`,
      )
      const failing = recipients.filter((one) => one !== 'fine').map((one) => namedBy(name, one))
      t.same([...new Set(all.map(({ address }) => address))].toSorted(), failing.toSorted(), `recipients of ${what}`)
    }
    const slow = cases.findIndex(([, local]) => local === 'slow')
    t.ok(
      readingsOf(slow).every(({ recipients }) => recipients.every(({ address }) => address === `slow@${DOMAIN}`)),
      'the warnings name it, too',
    )
  })
}

function startNextServer(onReport: (to: string, text: string) => void): Promise<SmtpLineServer> {
  return startSmtpLineServer('127.0.0.1', (socket) => {
    let to = ''
    return {
      onCommand(verb, path) {
        if (verb === 'MAIL') to = ''
        if (verb === 'DATA' && to === '') return '554 5.5.1 no valid recipients'
        if (verb !== 'RCPT') return undefined
        const reply = REPLIES[path.split('@')[0] ?? '']
        if (reply === undefined) to = path
        return reply
      },
      async onMail(text) {
        onReport(to, text)
        socket.write('250 2.0.0 taken\r\n')
      },
    }
  })
}

function eximSettings(port: number, next: number, folder: string): string {
  return `
primary_hostname = relay.test
spool_directory = ${folder}/spool
log_file_path = ${folder}/spool/%slog
exim_user = Debian-exim
exim_group = Debian-exim
never_users =
local_interfaces = 127.0.0.1
daemon_smtp_ports = ${port}
pid_file_path = ${folder}/spool/exim.pid
tls_advertise_hosts =
host_lookup =
rfc1413_query_timeout = 0s
delay_warning = 2s
acl_smtp_rcpt = check_rcpt
begin acl
check_rcpt:
  accept
begin routers
alias:
  driver = redirect
  domains = ${DOMAIN}
  local_parts = alias
  data = gone@${DOMAIN}
next:
  driver = manualroute
  transport = next
  route_list = * 127.0.0.1
  self = send
begin transports
next:
  driver = smtp
  port = ${next}
  allow_localhost
  hosts_try_prdr =
begin retry
* * F,6s,1s
`
}
