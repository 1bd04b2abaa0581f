/**
 * What the DNS really says about a sending domain's records. Effects are checked, not text (contract.md 7.2).
 *
 * A record is `verified` when its effect is there; `pending` while nothing was ever published; `failed` when what is
 * published has another effect, or nothing is left of what was seen before; `temporary_failure` when no answer came.
 * Never throws for what the DNS holds. RFC 6376 §3.6.1, RFC 7208, RFC 9989, by way of mailauth.
 */
import { createPublicKey } from 'node:crypto'
import { dmarc, spf } from 'mailauth'
import { getPublicKey } from 'mailauth/lib/tools.js'
import { errorText } from '../base/errors.ts'
import type { DnsAnswer, Resolver } from '../network/resolver.ts'
import type { DomainRecord, RecordCheck } from '../store/records.ts'
import { asMailauthResolver } from './lookup-records.ts'
import { dkimRecordName } from './required-records.ts'
import type { RecordFacts, RecordPurpose } from './required-records.ts'

export interface DomainCheckFacts extends RecordFacts {
  /** Every IP that mail of this domain may leave from. */
  ips: string[]
}

/** The purposes without which a domain does not send. */
export const REQUIRED_PURPOSES: readonly RecordPurpose[] = ['dkim', 'return_path', 'spf']

/** A check without what every check has. */
interface Finding {
  status: 'verified' | 'missing' | 'failed' | 'temporary_failure'
  found: string[]
  error?: string
  hint?: string
  evaluated?: { ip: string; result: string }[]
}

/** RFC 8301 §3.2: shorter keys are not to be accepted. */
const LEAST_KEY_BITS = 1024
const MOST_FOUND_RECORDS = 10
const MOST_FOUND_CHARACTERS = 2_048
const SPF_SENDER = 'x'

export async function checkDomain(
  domain: DomainRecord,
  lookups: Resolver,
  facts: DomainCheckFacts,
  now: number,
): Promise<RecordCheck[]> {
  const [dkimFinding, spfFinding, dmarcFinding] = await Promise.all([
    checkDkim(domain, lookups),
    checkSpf(domain, lookups, facts),
    checkDmarc(domain, lookups),
  ])
  const findings: [RecordPurpose, Finding][] = [
    ['dkim', dkimFinding],
    ['return_path', await checkReturnPath(domain, lookups, facts, spfFinding)],
    ['spf', spfFinding],
    ['dmarc', dmarcFinding],
  ]
  return findings.map(([purpose, finding]) => toCheck(purpose, finding, domain, now))
}

function toCheck(purpose: RecordPurpose, finding: Finding, domain: DomainRecord, now: number): RecordCheck {
  return {
    purpose,
    status: finding.status === 'missing' ? statusOfMissing(purpose, domain) : finding.status,
    found: finding.found.slice(0, MOST_FOUND_RECORDS).map((text) => text.slice(0, MOST_FOUND_CHARACTERS)),
    error: finding.error ?? null,
    hint: finding.hint ?? null,
    checkedAt: now,
    ...(finding.evaluated === undefined ? {} : { evaluated: finding.evaluated }),
  }
}

/** Never published yet, or taken away. */
function statusOfMissing(purpose: RecordPurpose, domain: DomainRecord): 'pending' | 'failed' {
  const before = domain.checks.find((check) => check.purpose === purpose)?.status
  const wasSeen = before === 'verified' || before === 'failed'
  const wasRequired = domain.verifiedAt !== null && REQUIRED_PURPOSES.includes(purpose)
  return wasSeen || wasRequired ? 'failed' : 'pending'
}

/** Passes when the key at the selector is ours, however it is written. */
async function checkDkim(domain: DomainRecord, lookups: Resolver): Promise<Finding> {
  const name = dkimRecordName(domain.name, domain.selector)
  const answer = await lookups.txt(name)
  if (answer.kind === 'no-answer') return noAnswer(answer.reason)
  if (answer.kind !== 'found') return missing('TXT', name, await hintForMissing(domain.name, name, lookups))
  const [record = '', ...others] = answer.records
  if (others.length > 0) {
    const hint = 'keep only the record shown here: with several, receivers may read the wrong one'
    return { status: 'failed', found: answer.records, error: `${answer.records.length} TXT records at ${name}`, hint }
  }
  const problem = await keyProblem(name, record, domain.publicKey)
  return problem === undefined
    ? { status: 'verified', found: answer.records }
    : { status: 'failed', found: answer.records, ...problem }
}

async function keyProblem(
  name: string,
  record: string,
  ourKey: string,
): Promise<{ error: string; hint?: string } | undefined> {
  try {
    const { publicKey } = await getPublicKey('DKIM', name, LEAST_KEY_BITS, async () => [[record]])
    const ours = createPublicKey({ key: Buffer.from(ourKey, 'base64'), format: 'der', type: 'spki' })
    if (createPublicKey(publicKey.toString()).equals(ours)) return undefined
    return { error: `another key is published at ${name}`, hint: 'replace it by the value shown here' }
  } catch (thrown) {
    const hint = 'the value may have been cut or changed; publish it again as shown here'
    return { error: `the record at ${name} is no DKIM key: ${errorText(thrown)}`, hint }
  }
}

/** Passes when SPF, asked as a receiver asks it, is `pass` for every IP. */
async function checkSpf(domain: DomainRecord, lookups: Resolver, facts: DomainCheckFacts): Promise<Finding> {
  const { hostname } = facts
  const resolver = asMailauthResolver(lookups)
  const evaluated = await Promise.all(
    facts.ips.map(async (ip) => {
      const sender = `${SPF_SENDER}@${domain.returnPath}`
      const result = await spf({ ip, sender, helo: hostname, mta: hostname, resolver, strict: true })
      return { ip, result: result.status.result }
    }),
  )
  const found = textRecords(await lookups.txt(domain.returnPath), 'v=spf1')
  const wrong = evaluated.filter(({ result }) => result !== 'pass')
  if (evaluated.length === 0) return { status: 'failed', found, error: 'the pool has no IP', evaluated }
  if (wrong.length === 0) return { status: 'verified', found, evaluated }
  const error = `SPF of ${domain.returnPath}: ${wrong.map(({ ip, result }) => `${result} for ${ip}`).join(', ')}`
  const hasNoAnswer = wrong.some(({ result }) => result === 'temperror')
  if (hasNoAnswer) return { status: 'temporary_failure', found, error, evaluated }
  return { status: found.length === 0 ? 'missing' : 'failed', found, error, evaluated }
}

/** Passes when mail to the return path comes to this server, or when the owner's own records let our IPs use it. */
async function checkReturnPath(
  domain: DomainRecord,
  lookups: Resolver,
  facts: DomainCheckFacts,
  spfFinding: Finding,
): Promise<Finding> {
  const name = domain.returnPath
  const [cname, mx] = await Promise.all([lookups.cname(name), lookups.mx(name)])
  const aliases = cname.kind === 'found' ? cname.records : []
  const exchanges = mx.kind === 'found' ? mx.records.map(({ exchange }) => exchange) : []
  const found = [...aliases, ...exchanges]
  const ours = [facts.targets.return_path, facts.hostname].map((host) => host.toLowerCase())
  const leadsHere = aliases.some((alias) => sameHost(alias, facts.targets.return_path))
  if (leadsHere || exchanges.some((exchange) => ours.includes(hostName(exchange)))) return { status: 'verified', found }
  if (spfFinding.status === 'verified') return { status: 'verified', found }
  if (cname.kind === 'no-answer') return noAnswer(cname.reason)
  if (mx.kind === 'no-answer') return noAnswer(mx.reason)
  if (found.length === 0) return missing('CNAME', name, await hintForMissing(domain.name, name, lookups))
  return {
    status: 'failed', found, error: `${name} leads to ${found.join(', ')}`,
    hint: `it must be a CNAME for ${facts.targets.return_path}`,
  }
}

/** Passes when one valid policy applies; our signature and return path are aligned with it by their names. */
async function checkDmarc(domain: DomainRecord, lookups: Resolver): Promise<Finding> {
  const name = `_dmarc.${domain.name}`
  const answer = await lookups.txt(name)
  if (answer.kind === 'no-answer') return noAnswer(answer.reason)
  const result = await dmarc({
    headerFrom: [domain.name],
    spfDomains: [domain.returnPath],
    dkimDomains: [{ domain: domain.name, aligned: domain.name }],
    resolver: asMailauthResolver(lookups),
  })
  const outcome = result === false ? 'none' : result.status.result
  const published = textRecords(answer, 'v=dmarc1')
  if (outcome === 'pass') return { status: 'verified', found: [result === false ? '' : (result.rr ?? '')] }
  if (outcome === 'temperror') return { status: 'temporary_failure', found: published, error: `no answer for ${name}` }
  if (published.length === 0) return missing('TXT', name, undefined)
  const error = published.length > 1 ? `${published.length} records at ${name}` : `the record at ${name} is not valid`
  return { status: 'failed', found: published, error }
}

/** A common slip: the DNS console adds the domain to a name that already ends in it. */
async function hintForMissing(domain: string, name: string, lookups: Resolver): Promise<string | undefined> {
  const doubled = `${name}.${domain}`
  const [text, alias] = await Promise.all([lookups.txt(doubled), lookups.cname(doubled)])
  if (text.kind !== 'found' && alias.kind !== 'found') return undefined
  return `found at ${doubled}: the DNS provider adds the domain itself`
}

function missing(type: string, name: string, hint: string | undefined): Finding {
  const error = `no ${type} record at ${name}`
  return { status: 'missing', found: [], error, ...(hint === undefined ? {} : { hint }) }
}

function noAnswer(reason: string): Finding {
  return { status: 'temporary_failure', found: [], error: reason }
}

function textRecords(answer: DnsAnswer<string>, start: string): string[] {
  return answer.kind === 'found' ? answer.records.filter((text) => text.trim().toLowerCase().startsWith(start)) : []
}

function sameHost(left: string, right: string): boolean {
  return hostName(left) === hostName(right)
}

/** Lower case, without the dot of the root. */
function hostName(name: string): string {
  return name.toLowerCase().replace(/\.$/, '') // one dot at the very end
}
