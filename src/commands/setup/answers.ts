/**
 * The answers that `sternpost setup` needs: from flags, or asked for on a terminal (systemd/README.md "Install"). Whether
 * certificates come by themselves is asked last: yes is the usual answer where the host name leads to this machine.
 *
 * Never asks without a terminal: it lists what is missing and throws ProcessExit 64. A wrong flag is 64 as well; a
 * wrong answer on a terminal is asked for again. Ctrl-C and Ctrl-D there end with 130.
 */
import { networkInterfaces } from 'node:os'
import { createInterface } from 'node:readline/promises'
import { EXIT, ProcessExit } from '../../base/errors.ts'
import { canonicalIp, isPublicUnicast } from '../../base/ip-address.ts'
import { parseAddress } from '../../mail/address.ts'
import { readDomainName } from '../../senders/domain-name.ts'
import { misuse } from '../shared/flag-values.ts'
import type { Given } from '../shared/verb.ts'

export type SetupFlags = Given<'hostname' | 'domain' | 'operatorEmail' | 'acmeCaFile'> & {
  ip?: string[]
  /** As in `tls.acme.directory`; true: the usual one; false: --no-acme. */
  acme?: string | boolean
  warmed?: boolean
  yes?: boolean
}

export interface SetupIp {
  address: string
  /** The address to bind, where a router puts `address` in its place; null: `address` itself. */
  source: string | null
}

export interface SetupAuthority {
  directory: string
  caFile: string | null
}

export interface SetupAnswers {
  hostname: string | null
  operatorEmail: string | null
  ips: SetupIp[]
  /** null: none now. */
  domain: string | null
  /** Certificates come by themselves from there; null: they do not, or sternpost.yaml is there already. */
  authority: SetupAuthority | null
}

/** What a first run has to know, and a later one may find in the files. */
type NeededAnswers = Record<'server' | 'ips' | 'certificates', boolean>

/** Whether a name leads to this machine, or to one of these addresses. */
type LeadsHere = (hostname: string, ips: readonly SetupIp[]) => Promise<boolean>

const USUAL_AUTHORITY = 'letsencrypt'
const IP_FLAG = '--ip <address>'

type Question = (text: string) => Promise<string>
type Reading<Value> = { ok: true; value: Value } | { ok: false; problem: string }

export async function setupAnswers(
  flags: SetupFlags,
  needed: NeededAnswers,
  leadsHere: LeadsHere,
): Promise<SetupAnswers> {
  const given = readFlags(flags)
  const detected = publicAddresses()
  const isYes = flags.yes === true
  const ips =
    given.ips.length > 0 ? given.ips : isYes && needed.ips ? detected.map((address) => ({ address, source: null })) : []
  const missing = [
    ...(needed.server && given.hostname === null ? ['--hostname <name>'] : []),
    ...(needed.server && given.domain === null ? ['--domain <name>'] : []),
    ...(needed.server && given.operatorEmail === null ? ['--operator-email <address>'] : []),
    ...(needed.ips && ips.length === 0 ? [IP_FLAG] : []),
    ...((needed.server || needed.ips) && !isYes ? ['--yes'] : []),
  ]
  // A sternpost.yaml that is there says it already.
  const isOpen = needed.server && needed.certificates && flags.acme === undefined
  const usual = async (hostname: string | null, here: readonly SetupIp[]): Promise<boolean> =>
    isOpen && hostname !== null && (await leadsHere(hostname, here))
  if (missing.length === 0) {
    const isWanted = await usual(given.hostname, ips)
    return { ...given, ips, authority: isWanted ? authorityOf(flags) : given.authority }
  }
  if (!process.stdin.isTTY) {
    const found = detected.length === 0 ? 'no public address was found here' : `found here: ${detected.join(', ')}`
    const hint = missing.includes(IP_FLAG) ? ` (${found})` : ''
    throw misuse(`nobody can be asked without a terminal; missing: ${missing.join(' ')}${hint}`)
  }
  const askAuthority = async (question: Question, answers: SetupAnswers): Promise<SetupAuthority | null> => {
    if (!isOpen) return given.authority
    const isUsual = await usual(answers.hostname, answers.ips)
    const hint = isUsual ? '[Y/n]' : `(${answers.hostname} does not lead to this machine yet) [y/N]`
    const isWanted = await isAgreed(question, `Certificates by themselves, from Let's Encrypt? ${hint} `, isUsual)
    return isWanted ? authorityOf(flags) : null
  }
  return askFor({ ...given, ips }, needed, { detected, isYes, askAuthority })
}

function authorityOf({ acme, acmeCaFile }: SetupFlags): SetupAuthority {
  return { directory: typeof acme === 'string' ? acme : USUAL_AUTHORITY, caFile: acmeCaFile ?? null }
}

function readFlags(flags: SetupFlags): SetupAnswers {
  return {
    hostname: flags.hostname === undefined ? null : need('--hostname', readName(flags.hostname)),
    domain: flags.domain === undefined ? null : need('--domain', readName(flags.domain)),
    operatorEmail: flags.operatorEmail === undefined ? null : need('--operator-email', readMail(flags.operatorEmail)),
    ips: (flags.ip ?? []).map((text) => need('--ip', readIp(text))),
    authority: flags.acme === undefined || flags.acme === false ? null : authorityOf(flags),
  }
}

function need<Value>(flag: string, reading: Reading<Value>): Value {
  if (reading.ok) return reading.value
  throw misuse(`${flag}: ${reading.problem}`)
}

function readName(text: string): Reading<string> {
  const reading = readDomainName(text)
  return reading.ok ? { ok: true, value: reading.name } : { ok: false, problem: `"${text}" ${reading.problem}` }
}

function readMail(text: string): Reading<string> {
  const parsed = parseAddress(text, { allowReservedNames: true })
  return parsed.ok ? { ok: true, value: parsed.mailbox.address } : { ok: false, problem: `"${text}" ${parsed.problem}` }
}

/** `203.0.113.10`, or `203.0.113.10=10.0.0.5` behind a router that translates. */
function readIp(text: string): Reading<SetupIp> {
  const [outer = '', inner] = text.split('=')
  const [address, source] = [canonicalIp(outer.trim()), inner === undefined ? null : canonicalIp(inner.trim())]
  if (address !== undefined && source !== undefined) return { ok: true, value: { address, source } }
  return { ok: false, problem: `"${text}" is no IP address, nor <public address>=<address of this machine>` }
}

/** Of this machine's interfaces, IPv4 first. */
function publicAddresses(): string[] {
  const found = Object.values(networkInterfaces())
    .flatMap((each) => each ?? [])
    .flatMap(({ address, internal }) => (internal ? [] : [canonicalIp(address) ?? '']))
    .filter(isPublicUnicast)
  return [...new Set(found)].toSorted((left, right) => Number(left.includes(':')) - Number(right.includes(':')))
}

interface AskingFacts {
  detected: readonly string[]
  isYes: boolean
  askAuthority(question: Question, answers: SetupAnswers): Promise<SetupAuthority | null>
}

async function askFor(
  given: SetupAnswers,
  needed: NeededAnswers,
  { detected, isYes, askAuthority }: AskingFacts,
): Promise<SetupAnswers> {
  // Questions are no result.
  const terminal = createInterface({ input: process.stdin, output: process.stderr })
  // Ctrl-C, Ctrl-D: else the open question would be waited for by nobody.
  terminal.once('SIGINT', () => terminal.close())
  const closed = new AbortController()
  terminal.once('close', () => closed.abort())
  const question: Question = (text) => terminal.question(text, { signal: closed.signal })
  try {
    const answers = { ...given }
    if (needed.server) {
      answers.hostname ??= await ask(question, 'Mail host name of this server, e.g. mail.example.net', '', readName)
      answers.domain ??= await ask(question, 'First sending domain', parentOf(answers.hostname), readName)
      answers.operatorEmail ??= await ask(question, 'Address that gets alerts', '', readMail)
    }
    if (needed.ips && answers.ips.length === 0) {
      const asked = 'Addresses that mail leaves from, with commas between (behind NAT: public=inner)'
      answers.ips = await ask(question, asked, detected.join(','), readIps)
    }
    answers.authority = await askAuthority(question, answers)
    const shown = [
      answers.hostname,
      answers.domain,
      answers.operatorEmail,
      ...answers.ips.map(({ address }) => address),
    ]
    const asked = `Set up with ${shown.filter((part) => part !== null).join(', ')}? [Y/n] `
    if (!isYes && !(await isAgreed(question, asked, true))) throw misuse('nothing was changed')
    return answers
  } catch (thrown) {
    if (!closed.signal.aborted) throw thrown
    throw new ProcessExit(EXIT.interrupted, '\nsternpost: interrupted: nothing was changed', { cause: thrown })
  } finally {
    terminal.close()
  }
}

function parentOf(hostname: string): string {
  const parent = hostname.slice(hostname.indexOf('.') + 1)
  return readDomainName(parent).ok ? parent : hostname
}

function readIps(text: string): Reading<SetupIp[]> {
  const ips: SetupIp[] = []
  for (const part of text.split(',').filter((each) => each.trim() !== '')) {
    const reading = readIp(part)
    if (!reading.ok) return reading
    ips.push(reading.value)
  }
  return ips.length === 0 ? { ok: false, problem: 'at least one address is needed' } : { ok: true, value: ips }
}

type Read<Value> = (text: string) => Reading<Value>

async function ask<Value>(question: Question, asked: string, usual: string, read: Read<Value>): Promise<Value> {
  for (;;) {
    const text = await question(`${asked}${usual === '' ? '' : ` [${usual}]`}: `)
    const reading = read(text.trim() === '' ? usual : text.trim())
    if (reading.ok) return reading.value
    process.stderr.write(`  ${reading.problem}\n`)
  }
}

async function isAgreed(question: Question, text: string, usual: boolean): Promise<boolean> {
  const answer = (await question(text)).trim()
  return answer === '' ? usual : /^(y|yes)$/i.test(answer)
}
