/**
 * The records that lead a name of the domain to this server: return path and tracking host (senders/README.md "Checks
 * of a domain"). An alias may take several steps, and other records that lead to the same place do as well.
 */
import type { Resolver } from '../../network/resolver.ts'
import type { DomainRecord } from '../../store/records/sender-records.ts'
import { failed, missing, noAnswer, recordsIn, verified, type RecordFinding } from './finding.ts'
import { aliasHint, followAliases } from './record-hints.ts'
import { spfRecordValue, type RecordFacts } from '../records/required-records.ts'

/** Passes when mail to the return path comes to this server, or when the owner's own records let our IPs use it. */
export async function checkReturnPath(
  { name: domain, returnPath: name }: DomainRecord,
  lookups: Resolver,
  facts: RecordFacts,
  spfFinding: RecordFinding,
): Promise<RecordFinding> {
  const target = facts.targets.return_path.toLowerCase()
  const [chain, mx] = await Promise.all([followAliases(name, lookups), lookups.mx(name)])
  const exchanges = recordsIn(mx).map(({ exchange }) => exchange)
  const found = [...chain.targets, ...exchanges]
  const isOurs = exchanges.some((exchange) => exchange === target || exchange === facts.hostname.toLowerCase())
  if (chain.targets.includes(target) || isOurs || spfFinding.status === 'verified') return verified(found)
  if (!chain.isLoop) {
    if (chain.failure !== undefined) return noAnswer(chain.failure)
    if (mx.kind === 'no-answer') return noAnswer(mx.reason)
    // Its SPF may be what makes it right: without that answer nobody can say that it is wrong.
    if (spfFinding.status === 'temporary_failure') return { ...noAnswer(spfFinding.error ?? ''), found }
  }
  const own = `or an MX for ${facts.hostname} with the TXT record ${spfRecordValue(facts)}`
  if (exchanges.length > 0 && chain.targets.length === 0) {
    return failed(found, leadsTo(name, found), `it must be a CNAME for ${target}, ${own}`)
  }
  const hint = await aliasHint({ domain, name, target, chain, lookups })
  return found.length === 0 ? missing('CNAME', name, hint) : failed(found, leadsTo(name, found), hint)
}

/** Certificates for names of tracked links: without one every link there is broken. */
export interface LinkCertificates {
  /** null: our doors show one for this name. Where one can be ordered, that is done. */
  lack(name: string): Promise<{ isOrdered: boolean; problem: string | null } | null>
  /** From now on `told` hears of each name that gets one. */
  onIssued(told: (name: string) => void): void
}

export interface TrackingFacts extends RecordFacts {
  linkCertificates: Pick<LinkCertificates, 'lack'> | null
}

/** Passes when the name leads to the tracking host, and our doors have a certificate for it. */
export async function checkTracking(
  domain: DomainRecord,
  lookups: Resolver,
  facts: TrackingFacts,
): Promise<RecordFinding> {
  const { found, ...finding } = await checkLinkName(domain, lookups, facts)
  const name = domain.trackingDomain
  const lack = finding.status === 'verified' ? await facts.linkCertificates?.lack(name) : undefined
  if (lack === undefined || lack === null) return { ...finding, found }
  const until = `until then tracked links lead to ${facts.targets.tracking}`
  if (!lack.isOrdered) {
    const hint = `let tls.acme order one, or add one to tls.certificates; ${until}`
    return failed(found, `no certificate for ${name}`, hint)
  }
  const error = `the certificate for ${name} is not there yet${lack.problem === null ? '' : `: ${lack.problem}`}`
  return { status: 'pending', found, error, hint: until }
}

/** Passes when the name leads to the tracking host, by an alias or by the same addresses. */
async function checkLinkName(
  { name: domain, trackingDomain: name }: DomainRecord,
  lookups: Resolver,
  facts: RecordFacts,
): Promise<RecordFinding> {
  const target = facts.targets.tracking.toLowerCase()
  const chain = await followAliases(name, lookups)
  if (chain.targets.includes(target)) return verified(chain.targets)
  if (!chain.isLoop && chain.failure !== undefined) return noAnswer(chain.failure)
  const wrong = { domain, name, target, chain, lookups }
  if (chain.isLoop) return failed(chain.targets, `${name} is an alias of itself`, await aliasHint(wrong))
  const [addresses, wanted] = await Promise.all([addressesOf(name, lookups), addressesOf(target, lookups)])
  const found = [...chain.targets, ...addresses]
  if (addresses.length > 0 && addresses.every((address) => wanted.includes(address))) return verified(found)
  const hint = await aliasHint(wrong)
  return found.length === 0 ? missing('CNAME', name, hint) : failed(found, leadsTo(name, found), hint)
}

const MOST_NAMED = 5

function leadsTo(name: string, found: string[]): string {
  return `${name} leads to ${found.slice(0, MOST_NAMED).join(', ')}`
}

async function addressesOf(name: string, lookups: Resolver): Promise<string[]> {
  const answers = await Promise.all([lookups.addresses(name, 4), lookups.addresses(name, 6)])
  return answers.flatMap(recordsIn)
}
