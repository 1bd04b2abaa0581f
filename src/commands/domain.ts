/**
 * `posthorn domain`: sending domains over the admin socket, with the wording of the API (operations.md 6).
 *
 * `check` ends with 0 when the domain is verified, with 1 when it is not, with 75 when `--wait` was not long enough.
 * `remove` shows how much mail waits and does nothing without --yes (64).
 */
import { readFileSync } from 'node:fs'
import { Option } from 'commander'
import type { Command } from 'commander'
import { systemClock } from '../base/clock.ts'
import { errorText, EXIT, ProcessExit } from '../base/errors.ts'
import { readDuration } from '../config/field-types.ts'
import type { DomainView } from '../senders/domain-view.ts'
import { callServer, listFromServer, textFromServer } from './admin-client.ts'
import type { AdminRequest } from './admin-client.ts'
import { DNS_FORMATS, dnsText, recordsToPublish } from './dns-formats.ts'
import type { DnsFormat } from './dns-formats.ts'
import { DOMAIN_HEADS, domainReport, domainRow, openRecords } from './domain-report.ts'
import { printNote, printResult, tableText } from './print.ts'
import { configurationFolder, readSettings } from './shared-options.ts'
import { waitUntilVerified } from './wait-until-verified.ts'

interface SharedFlags {
  config?: string
  json?: boolean
  quiet?: boolean
}

interface AddFlags extends SharedFlags {
  returnPath?: string
  trackingDomain?: string
  selector?: string
  keyFile?: string
  pool?: string
  allowSubdomains?: boolean
}

interface RemoveFlags extends SharedFlags {
  purge?: boolean
  yes?: boolean
}

const STATUSES = ['all', 'pending', 'verified', 'degraded', 'failed', 'suspended']

export function addDomainCommands(program: Command): void {
  const domain = program.command('domain').description('sending domains')
  addVerb(domain, 'add <name>', 'add a sending domain; prints the DNS records to publish')
    .option('--return-path <label>', 'label of the return path (default: bounces)')
    .option('--tracking-domain <label>', 'label of tracked links (default: t)')
    .option('--selector <label>', 'DKIM selector (default: a random one)')
    .option('--key-file <file>', 'DKIM private key of your own: PEM, RSA of 2048 to 4096 bits')
    .option('--pool <name>', 'pool of pools.yaml that its mail leaves from')
    .option('--allow-subdomains', 'names below it may be sent from too')
    .addHelpText('after', '\nExample:\n  posthorn domain add acme.com')
    .action(add)
  addVerb(domain, 'list', 'list the sending domains')
    .addOption(new Option('--status <status>', 'those in this state').choices(STATUSES).default('all'))
    .addHelpText('after', '\nExample:\n  posthorn domain list --status degraded')
    .action(list)
  addVerb(domain, 'show <name>', 'show a domain as the last check found it')
    .addHelpText('after', '\nExample:\n  posthorn domain show acme.com')
    .action(show)
  addVerb(domain, 'check <name>', 'ask the DNS now; 0 when the domain is verified')
    .option('--wait <duration>', 'check again until it is verified, at most this long, e.g. 10m')
    .addHelpText('after', '\nExample:\n  posthorn domain check acme.com --wait 10m')
    .action(check)
  addVerb(domain, 'dns <name>', 'print the DNS records to publish')
    .addOption(new Option('--format <format>', 'how').choices(DNS_FORMATS).default('table'))
    .addHelpText('after', '\nExample:\n  posthorn domain dns acme.com --format zone >> acme.com.zone')
    .action(dns)
  addVerb(domain, 'remove <name>', 'remove a domain; waiting mail is still delivered')
    .option('--purge', 'cancel the waiting mail')
    .option('--yes', 'do it')
    .addHelpText('after', '\nExample:\n  posthorn domain remove acme.com --yes')
    .action(remove)
  const dkim = domain.command('dkim').description('DKIM keys of a domain')
  addVerb(dkim, 'rotate <name>', 'begin to replace the DKIM key')
    .addHelpText('after', '\nExample:\n  posthorn domain dkim rotate acme.com')
    .action(rotate)
}

/** A verb with the flags that each one has. */
function addVerb(parent: Command, words: string, description: string): Command {
  return parent
    .command(words)
    .description(description)
    .option('--config <dir>', 'folder of the configuration files')
    .option('--json', 'print one JSON document')
    .option('--quiet', 'print the result alone')
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
  printNote(flags, `  posthorn domain check ${domain.domain} --wait 10m`)
}

async function list(flags: SharedFlags & { status: string }): Promise<void> {
  const entries = await listFromServer(socketOf(flags), `/v1/domains?status=${flags.status}`)
  const domains = entries.map(readDomain)
  printResult(flags, domains, () => tableText(DOMAIN_HEADS, domains.map(domainRow), isTerminal()))
  if (domains.length === 0) printNote(flags, 'No such domain. Add one: posthorn domain add acme.com')
}

async function show(name: string, flags: SharedFlags): Promise<void> {
  const domain = readDomain(await call(flags, { method: 'GET', path: pathOf(name) }))
  printResult(flags, domain, () => domainReport(domain))
}

async function check(name: string, flags: SharedFlags & { wait?: string }): Promise<void> {
  const mostMilliseconds = flags.wait === undefined ? 0 : readWait(flags.wait)
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

async function dns(name: string, flags: SharedFlags & { format: DnsFormat }): Promise<void> {
  const format = flags.json === true ? 'json' : flags.format
  if (format === 'zone') {
    const adminRequest = { method: 'GET', path: `${pathOf(name)}/zonefile` } as const
    process.stdout.write(await textFromServer({ socketPath: socketOf(flags), ...adminRequest }))
    return
  }
  const domain = readDomain(await call(flags, { method: 'GET', path: pathOf(name) }))
  printResult(flags, recordsToPublish(domain), () => dnsText(domain, format, isTerminal()))
}

async function remove(name: string, flags: RemoveFlags): Promise<void> {
  const isSure = flags.yes === true
  const purge = flags.purge === true
  const path = `${pathOf(name)}?purge=${purge}&dry_run=${!isSure}`
  const removed = readRemoved(await call(flags, { method: 'DELETE', path }))
  const fate = purge ? 'canceled' : 'delivered with its keys'
  if (isSure) {
    printResult(flags, removed, () => `${removed.domain} is removed; waiting mail, to be ${fate}: ${removed.queued_messages}\n`)
    return
  }
  printResult(flags, removed, () => `${removed.domain}: waiting mail, would be ${fate}: ${removed.queued_messages}\n`)
  printNote(flags, `Nothing is removed yet. Do it with: posthorn domain remove ${removed.domain}${purge ? ' --purge' : ''} --yes`)
  process.exitCode = EXIT.usage
}

async function rotate(name: string, flags: SharedFlags): Promise<void> {
  const domain = readDomain(await call(flags, { method: 'POST', path: `${pathOf(name)}/dkim/rotate`, body: {} }))
  const records = domain.records.filter(({ role }) => role === 'next')
  printResult(flags, domain, () => dnsText({ ...domain, records }, 'table', isTerminal()))
  printNote(flags, 'Publish this beside the old key, which goes on signing until two checks, 10 min apart, have seen it.')
}

function call(flags: SharedFlags, adminRequest: Omit<AdminRequest, 'socketPath'>): Promise<unknown> {
  return callServer({ socketPath: socketOf(flags), ...adminRequest })
}

function socketOf({ config }: SharedFlags): string {
  return readSettings(configurationFolder(config)).listen.admin_socket
}

function pathOf(name: string): string {
  return `/v1/domains/${encodeURIComponent(name)}`
}

function isTerminal(): boolean {
  return process.stdout.isTTY
}

function readKeyFile(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (cause) {
    throw new ProcessExit(EXIT.disk, `posthorn: --key-file: ${errorText(cause)}`, { cause })
  }
}

function readWait(text: string): number {
  const reading = readDuration(text)
  if (reading.ok) return reading.value
  throw new ProcessExit(EXIT.usage, `posthorn: --wait: ${reading.problem}.`)
}

function readDomain(answer: unknown): DomainView {
  if (isDomain(answer)) return answer
  throw new ProcessExit(EXIT.internal, 'posthorn: the answer of the server holds no domain.')
}

/** The rest is as the server of the same version makes it. */
function isDomain(answer: unknown): answer is DomainView {
  return typeof answer === 'object' && answer !== null && 'domain' in answer && 'status' in answer
    && 'records' in answer && Array.isArray(answer.records)
}

interface RemovedDomain {
  domain: string
  queued_messages: number
}

function readRemoved(answer: unknown): RemovedDomain {
  if (isRemoved(answer)) return answer
  throw new ProcessExit(EXIT.internal, 'posthorn: the answer of the server holds no count of waiting mail.')
}

function isRemoved(answer: unknown): answer is RemovedDomain {
  return typeof answer === 'object' && answer !== null && 'domain' in answer && 'queued_messages' in answer
}
