/**
 * `sternpost domain`: sending domains, with the wording of the API (commands/README.md "The command line").
 *
 * `check` ends with 0 when the domain is verified, with 1 when it is not, with 75 when `--wait` was not long enough.
 * `remove` shows how much mail waits and does nothing without --yes (64).
 */
import { readFileSync } from 'node:fs'
import { Option, type Command } from 'commander'
import { systemClock } from '../../base/clock.ts'
import { errorText, EXIT, ProcessExit } from '../../base/errors.ts'
import type { DomainView } from '../../senders/domain-view.ts'
import { callServer, listFromServer, textFromServer, type ApiCall } from '../shared/api-client.ts'
import { DNS_FORMATS, dnsText, recordsToPublish, type DnsFormat } from './dns-formats.ts'
import { DOMAIN_HEADS, domainReport, domainRow, openRecords } from './domain-report.ts'
import { durationFlag } from '../shared/flag-values.ts'
import { isTerminal, printNote, printResult, tableText } from '../shared/print.ts'
import { serverAddress } from '../shared/server-address.ts'
import { addVerb, isConfirmed, readAnswer, type ConsentFlags, type VerbFlags } from '../shared/verb.ts'
import { waitUntilVerified } from './wait-until-verified.ts'

interface AddFlags extends VerbFlags {
  returnPath?: string
  trackingDomain?: string
  selector?: string
  keyFile?: string
  pool?: string
  allowSubdomains?: boolean
}

interface RemoveFlags extends ConsentFlags {
  purge?: boolean
}

const STATUSES = ['all', 'pending', 'verified', 'degraded', 'failed', 'suspended']

export function addDomainCommands(program: Command): void {
  const domain = program.command('domain').description('sending domains')
  addVerb(domain, {
    words: 'add <name>',
    description: 'add a sending domain; prints the DNS records to publish',
    example: 'sternpost domain add acme.com',
  })
    .option('--return-path <label>', 'label of the return path (default: bounces)')
    .option('--tracking-domain <label>', 'label of tracked links (default: t)')
    .option('--selector <label>', 'DKIM selector (default: a random one)')
    .option('--key-file <file>', 'DKIM private key of your own: PEM, RSA of 2048 to 4096 bits')
    .option('--pool <name>', 'pool of pools.yaml that its mail leaves from')
    .option('--allow-subdomains', 'names below it may be sent from too')
    .action(add)
  addVerb(domain, {
    words: 'list',
    description: 'list the sending domains',
    example: 'sternpost domain list --status degraded',
  })
    .addOption(new Option('--status <status>', 'those in this state').choices(STATUSES).default('all'))
    .action(list)
  addVerb(domain, {
    words: 'show <name>',
    description: 'show a domain as the last check found it',
    example: 'sternpost domain show acme.com',
  }).action(show)
  addVerb(domain, {
    words: 'check <name>',
    description: 'ask the DNS now; 0 when the domain is verified',
    example: 'sternpost domain check acme.com --wait 10m',
  })
    .option('--wait <duration>', 'check again until it is verified, at most this long, e.g. 10m')
    .action(check)
  addVerb(domain, {
    words: 'dns <name>',
    description: 'print the DNS records to publish',
    example: 'sternpost domain dns acme.com --format zone >> acme.com.zone',
  })
    .addOption(new Option('--format <format>', 'how').choices(DNS_FORMATS).default('table'))
    .action(dns)
  addVerb(domain, {
    words: 'remove <name>',
    description: 'remove a domain; waiting mail is still delivered',
    example: 'sternpost domain remove acme.com --yes',
  })
    .option('--purge', 'cancel the waiting mail')
    .option('--yes', 'do it')
    .action(remove)
  const dkim = domain.command('dkim').description('DKIM keys of a domain')
  addVerb(dkim, {
    words: 'rotate <name>',
    description: 'begin to replace the DKIM key',
    example: 'sternpost domain dkim rotate acme.com',
  }).action(rotate)
}

async function add(name: string, flags: AddFlags): Promise<void> {
  const body = {
    domain: name,
    return_path: flags.returnPath,
    tracking_domain: flags.trackingDomain,
    dkim_selector: flags.selector,
    dkim_private_key: flags.keyFile === undefined ? undefined : readKeyFile(flags.keyFile),
    ip_pool: flags.pool,
    allow_subdomains: flags.allowSubdomains,
  }
  const domain = readDomain(await call(flags, { method: 'POST', path: '/v1/domains', body }))
  printResult(flags, domain, () => dnsText(domain, 'table', isTerminal()))
  if (domain.status === 'verified') {
    printNote(flags, `${domain.domain} is there already, and verified.`)
    return
  }
  printNote(flags, `${domain.domain} is ${domain.status}. Publish these records, then:`)
  printNote(flags, `  sternpost domain check ${domain.domain} --wait 10m`)
}

async function list(flags: VerbFlags & { status: string }): Promise<void> {
  const entries = await listFromServer(serverAddress(flags), '/v1/domains', { status: flags.status })
  const domains = entries.map(readDomain)
  printResult(flags, domains, () => tableText(DOMAIN_HEADS, domains.map(domainRow), isTerminal()))
  if (domains.length === 0) printNote(flags, 'No such domain. Add one: sternpost domain add acme.com')
}

async function show(name: string, flags: VerbFlags): Promise<void> {
  const domain = readDomain(await call(flags, { method: 'GET', path: pathOf(name) }))
  printResult(flags, domain, () => domainReport(domain))
}

async function check(name: string, flags: VerbFlags & { wait?: string }): Promise<void> {
  const mostMilliseconds = flags.wait === undefined ? 0 : durationFlag('--wait', flags.wait)
  const domain = await waitUntilVerified({
    clock: systemClock,
    mostMilliseconds,
    verify: async () => readDomain(await call(flags, { method: 'POST', path: `${pathOf(name)}/verify`, body: {} })),
    onCheck: (seen) => printNote(flags, `${seen.domain} is ${seen.status}: ${openRecords(seen)}`),
  })
  printResult(flags, domain, () => domainReport(domain))
  process.exitCode = checkExitCode(domain, flags.wait !== undefined)
}

function checkExitCode({ status }: DomainView, hasWaited: boolean): number {
  if (status === 'verified') return EXIT.done
  return hasWaited && status !== 'suspended' ? EXIT.tryAgain : EXIT.failed
}

async function dns(name: string, flags: VerbFlags & { format: DnsFormat }): Promise<void> {
  const format = flags.json === true ? 'json' : flags.format
  if (format === 'zone') {
    process.stdout.write(await textFromServer(serverAddress(flags), `${pathOf(name)}/zonefile`))
    return
  }
  const domain = readDomain(await call(flags, { method: 'GET', path: pathOf(name) }))
  printResult(flags, recordsToPublish(domain), () => dnsText(domain, format, isTerminal()))
}

async function remove(name: string, flags: RemoveFlags): Promise<void> {
  const purge = flags.purge === true
  const path = `${pathOf(name)}?purge=${purge}&dry_run=${flags.yes !== true}`
  const removed = readRemoved(await call(flags, { method: 'DELETE', path }))
  const fate = purge ? 'canceled' : 'delivered with its keys'
  const would = {
    document: removed,
    text: `${removed.domain}: waiting mail, would be ${fate}: ${removed.queued_messages}`,
    command: `sternpost domain remove ${removed.domain}${purge ? ' --purge' : ''}`,
  }
  if (!isConfirmed(flags, would)) return
  const done = `${removed.domain} is removed; waiting mail, to be ${fate}: ${removed.queued_messages}`
  printResult(flags, removed, () => `${done}\n`)
}

async function rotate(name: string, flags: VerbFlags): Promise<void> {
  const domain = readDomain(await call(flags, { method: 'POST', path: `${pathOf(name)}/dkim/rotate`, body: {} }))
  const records = domain.records.filter(({ role }) => role === 'next')
  printResult(flags, domain, () => dnsText({ ...domain, records }, 'table', isTerminal()))
  printNote(flags, 'Publish this beside the old key, which signs until two checks, 10 min apart, have seen it.')
}

function call(flags: VerbFlags, apiCall: ApiCall): Promise<unknown> {
  return callServer(serverAddress(flags), apiCall)
}

function pathOf(name: string): string {
  return `/v1/domains/${encodeURIComponent(name)}`
}

function readKeyFile(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw new ProcessExit(EXIT.disk, `sternpost: --key-file: ${errorText(cause)}`, { cause })
  }
}

function readDomain(answer: unknown): DomainView {
  return readAnswer<DomainView>(answer, 'domain', 'status', 'records')
}

interface RemovedDomain {
  domain: string
  queued_messages: number
}

function readRemoved(answer: unknown): RemovedDomain {
  return readAnswer<RemovedDomain>(answer, 'domain', 'queued_messages')
}
