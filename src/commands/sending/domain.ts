/**
 * `sternpost domain`: sending domains, with the wording of the API (commands/README.md "The command line").
 *
 * `check` ends with 0 when the domain is verified, with 1 when it is not, with 75 when `--wait` was not long enough.
 * `remove` shows how much mail waits and does nothing without --yes (64).
 */
import { Option, type Command } from 'commander'
import { authenticationSchema } from '../../api/authentication.ts'
import { domainLinkSchema, domainSchema, removedDomainSchema, type DomainJson } from '../../api/domain.ts'
import { SECOND, systemClock, type Clock } from '../../base/clock.ts'
import { EXIT } from '../../base/errors.ts'
import {
  ask,
  askAll,
  callServer,
  LONG_PATIENCE,
  readAnswer,
  textFromServer,
  type ApiPath,
} from '../shared/api-client.ts'
import { commandText } from '../shared/command-text.ts'
import { countFlag, durationFlag, fileFlag } from '../shared/flag-values.ts'
import { printList, printNote, printResult } from '../shared/print.ts'
import { isTerminal } from '../shared/text.ts'
import { addVerb, isConfirmed, pause, type ConsentFlags, type Given, type VerbFlags } from '../shared/verb.ts'
import { dmarcReport } from './dmarc-report.ts'
import {
  DNS_FORMATS,
  dnsText,
  recordsToPublish,
  type DnsFormat,
  DOMAIN_COLUMNS,
  domainReport,
  openRecords,
} from './domain-report.ts'

type AddFlags = VerbFlags &
  Given<'returnPath' | 'trackingDomain' | 'selector' | 'keyFile' | 'pool'> & { allowSubdomains?: boolean }

const STATUSES = ['all', 'pending', 'verified', 'degraded', 'failed', 'suspended']

export function addDomainCommands(program: Command): void {
  const domain = program.command('domain').description('sending domains')
  addVerb(domain, 'add <name>', 'add a sending domain; prints the DNS records to publish', 'acme.com')
    .option('--return-path <label>', 'label of the return path (default: bounces)')
    .option('--tracking-domain <label>', 'label of tracked links (default: t)')
    .option('--selector <label>', 'DKIM selector (default: a random one)')
    .option('--key-file <file>', 'DKIM private key of your own: PEM, RSA of 2048 to 4096 bits')
    .option('--pool <name>', 'pool of pools.yaml that its mail leaves from')
    .option('--allow-subdomains', 'names below it may be sent from too')
    .action(add)
  addVerb(domain, 'list', 'list the sending domains', '--status degraded')
    .addOption(new Option('--status <status>', 'those in this state').choices(STATUSES).default('all'))
    .action(list)
  addVerb(domain, 'show <name>', 'show a domain as the last check found it', 'acme.com').action(show)
  addVerb(domain, 'check <name>', 'ask the DNS now; 0 when the domain is verified', 'acme.com --wait 10m')
    .option('--wait <duration>', 'check again until it is verified, at most this long, e.g. 10m')
    .action(check)
  addVerb(domain, 'dmarc <name>', 'what DMARC and TLS reports say: who sends as the domain', 'acme.com --days 7')
    .option('--days <count>', 'of so many days, today included', '30')
    .action(dmarc)
  const linked = 'print a link that shows the DNS records to whoever publishes them, for 7 days'
  addVerb(domain, 'link <name>', linked, 'acme.com').action(link)
  addVerb(domain, 'dns <name>', 'print the DNS records to publish', 'acme.com --format zone >> acme.com.zone')
    .addOption(new Option('--format <format>', 'how').choices(DNS_FORMATS).default('table'))
    .action(dns)
  addVerb(domain, 'remove <name>', 'remove a domain; waiting mail is still delivered', 'acme.com --yes')
    .option('--purge', 'cancel the waiting mail')
    .option('--yes', 'do it')
    .action(remove)
  const dkim = domain.command('dkim').description('DKIM keys of a domain')
  addVerb(dkim, 'rotate <name>', 'begin to replace the DKIM key', 'acme.com').action(rotate)
}

const pathOf = (name: string): ApiPath => `/v1/domains/${encodeURIComponent(name)}`

async function add(name: string, flags: AddFlags): Promise<void> {
  const body = {
    domain: name,
    return_path: flags.returnPath,
    tracking_domain: flags.trackingDomain,
    dkim_selector: flags.selector,
    dkim_private_key:
      flags.keyFile === undefined ? undefined : fileFlag('--key-file', flags.keyFile, 1).toString('utf8'),
    ip_pool: flags.pool,
    allow_subdomains: flags.allowSubdomains,
  }
  const domain = await ask(flags, domainSchema, 'POST /v1/domains', body)
  printResult(flags, domain, () => dnsText(domain, 'table', isTerminal()))
  if (domain.status === 'verified') return printNote(flags, `${domain.domain} is there already, and verified.`)
  printNote(flags, `${domain.domain} is ${domain.status}. Publish these records, then:`)
  printNote(flags, `  ${checkCommand(flags, domain.domain)}`)
}

/** Waits for the records of a new domain. */
export function checkCommand(flags: VerbFlags, domain: string): string {
  return commandText(flags, { verb: 'domain check', arguments: [domain], options: { wait: '10m' } })
}

async function list(flags: VerbFlags & { status: string }): Promise<void> {
  const domains = await askAll(flags, domainSchema, '/v1/domains', { status: flags.status })
  printList(
    flags,
    DOMAIN_COLUMNS,
    domains,
    `No such domain. Add one: ${commandText(flags, { verb: 'domain add', arguments: ['acme.com'] })}`,
  )
}

async function show(name: string, flags: VerbFlags): Promise<void> {
  const domain = await ask(flags, domainSchema, `GET ${pathOf(name)}`)
  printResult(flags, domain, () => domainReport(domain))
}

async function check(name: string, flags: VerbFlags & { wait?: string }): Promise<void> {
  const domain = await waitUntilVerified({
    clock: systemClock,
    mostMilliseconds: flags.wait === undefined ? 0 : durationFlag('--wait', flags.wait),
    verify: () => ask(flags, domainSchema, `POST ${pathOf(name)}/verify`),
    onCheck: (seen) => printNote(flags, `${seen.domain} is ${seen.status}: ${openRecords(seen)}`),
  })
  printResult(flags, domain, () => domainReport(domain))
  const isOpen = flags.wait !== undefined && domain.status !== 'suspended'
  process.exitCode = domain.status === 'verified' ? EXIT.done : isOpen ? EXIT.tryAgain : EXIT.failed
}

interface WaitOptions {
  clock: Clock
  mostMilliseconds: number
  verify: () => Promise<DomainJson>
  /** Called after each check that was not the last one. */
  onCheck: (domain: DomainJson) => void
  /** Then the last check is the result. */
  ended?: AbortSignal
}

/** Above the 10 s within which the server repeats its last answer (http/README.md "Domains"). */
const CHECK_EVERY = 15 * SECOND

/** Until the time is over; ends at once for a suspended domain, which no check changes. */
export async function waitUntilVerified(options: WaitOptions): Promise<DomainJson> {
  const { clock, mostMilliseconds, verify, onCheck, ended = new AbortController().signal } = options
  const end = clock.now() + mostMilliseconds
  for (;;) {
    const domain = await verify()
    const left = end - clock.now()
    if (domain.status === 'verified' || domain.status === 'suspended' || left <= 0) return domain
    onCheck(domain)
    await pause(clock, Math.min(CHECK_EVERY, left), ended)
    if (ended.aborted) return domain
  }
}

async function dns(name: string, flags: VerbFlags & { format: DnsFormat }): Promise<void> {
  const format = flags.json === true ? 'json' : flags.format
  if (format === 'zone') {
    process.stdout.write(await textFromServer(flags, `${pathOf(name)}/zonefile`))
    return
  }
  const domain = await ask(flags, domainSchema, `GET ${pathOf(name)}`)
  printResult(flags, recordsToPublish(domain), () => dnsText(domain, format, isTerminal()))
}

async function link(name: string, flags: VerbFlags): Promise<void> {
  const made = await ask(flags, domainLinkSchema, `POST ${pathOf(name)}/link`, {})
  printResult(flags, made, () => `${made.url}\n`)
}

async function dmarc(name: string, flags: VerbFlags & { days: string }): Promise<void> {
  const days = countFlag('--days', flags.days)
  const answer = await ask(flags, authenticationSchema, `GET ${pathOf(name)}/authentication?days=${days}`)
  printResult(flags, answer, () => dmarcReport(answer, isTerminal()))
}

async function remove(name: string, flags: ConsentFlags & { purge?: boolean }): Promise<void> {
  const purge = flags.purge === true
  const query = `purge=${purge}&dry_run=${flags.yes !== true}`
  const answer = await callServer(flags, `DELETE ${pathOf(name)}?${query}`, { patience: LONG_PATIENCE })
  const removed = readAnswer(removedDomainSchema, answer)
  const fate = purge ? 'canceled' : 'delivered with its keys'
  const would = {
    document: removed,
    text: `${removed.domain}: waiting mail, would be ${fate}: ${removed.queued_messages}`,
    command: { verb: 'domain remove', arguments: [removed.domain], options: { purge } },
  }
  if (!isConfirmed(flags, would)) return
  const done = `${removed.domain} is removed; waiting mail, to be ${fate}: ${removed.queued_messages}`
  printResult(flags, removed, () => `${done}\n`)
}

async function rotate(name: string, flags: VerbFlags): Promise<void> {
  const domain = await ask(flags, domainSchema, `POST ${pathOf(name)}/dkim/rotate`)
  const records = domain.records.filter(({ role }) => role === 'next')
  printResult(flags, domain, () => dnsText({ ...domain, records }, 'table', isTerminal()))
  printNote(flags, 'Publish this beside the old key, which signs until two checks, 10 min apart, have seen it.')
}
