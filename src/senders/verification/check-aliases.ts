/**
 * The records that lead a name of the domain to this server: return path and tracking host (senders/README.md "Checks
 * of a domain").
 *
 * Effects are checked: an alias may take several steps, and other records that lead to the same place do as well. Never
 * throws for what the DNS holds.
 */
import type { MxRecord, Resolver } from '../../network/resolver.ts'
import type { DomainRecord } from '../../store/records/sender-records.ts'
import { failed, missing, noAnswer, recordsIn, verified, type RecordFinding } from './finding.ts'
import { aliasHint, followAliases } from './record-hints.ts'
import { spfRecordValue, type RecordFacts } from '../records/required-records.ts'

/** Passes when mail to the return path comes to this server, or when the owner's own records let our IPs use it. */
export async function checkReturnPath(
  domain: DomainRecord,
  lookups: Resolver,
  facts: RecordFacts,
  spfFinding: RecordFinding,
): Promise<RecordFinding> {
  const name = domain.returnPath
  const target = facts.targets.return_path.toLowerCase()
  const [chain, mx] = await Promise.all([followAliases(name, lookups), lookups.mx(name)])
  const exchanges = recordsIn(mx).map(({ exchange }: MxRecord) => exchange)
  const found = [...chain.targets, ...exchanges]
  const leadsHere =
    chain.targets.includes(target) ||
    exchanges.some((exchange) => exchange === target || exchange === facts.hostname.toLowerCase())
  if (leadsHere || spfFinding.status === 'verified') return verified(found)
  const error = `${name} leads to ${found.slice(0, MOST_NAMED).join(', ')}`
  if (chain.isLoop) return failed(found, error, await aliasHint({ domain: domain.name, name, target, chain, lookups }))
  if (chain.failure !== undefined) return noAnswer(chain.failure)
  if (mx.kind === 'no-answer') return noAnswer(mx.reason)
  // Its SPF may be what makes it right: without that answer nobody can say that it is wrong.
  if (spfFinding.status === 'temporary_failure') return { ...noAnswer(spfFinding.error ?? ''), found }
  const hint = await aliasHint({ domain: domain.name, name, target, chain, lookups })
  if (found.length === 0) return missing('CNAME', name, hint)
  if (chain.targets.length > 0) return failed(found, error, hint)
  const own = `or an MX for ${facts.hostname} with the TXT record ${spfRecordValue(facts)}`
  return failed(found, error, `it must be a CNAME for ${target}, ${own}`)
}

const MOST_NAMED = 5

/** Passes when the name leads to the tracking host, by an alias or by the same addresses. */
export async function checkTracking(
  domain: DomainRecord,
  lookups: Resolver,
  facts: RecordFacts,
): Promise<RecordFinding> {
  const name = domain.trackingDomain
  const target = facts.targets.tracking.toLowerCase()
  const chain = await followAliases(name, lookups)
  if (chain.targets.includes(target)) return verified(chain.targets)
  const hintRequest = { domain: domain.name, name, target, chain, lookups }
  if (chain.isLoop) return failed(chain.targets, `${name} is an alias of itself`, await aliasHint(hintRequest))
  if (chain.failure !== undefined) return noAnswer(chain.failure)
  const [addresses, wanted] = await Promise.all([addressesOf(name, lookups), addressesOf(target, lookups)])
  const found = [...chain.targets, ...addresses]
  if (addresses.length > 0 && addresses.every((address) => wanted.includes(address))) return verified(found)
  const hint = await aliasHint(hintRequest)
  if (found.length === 0) return missing('CNAME', name, hint)
  return failed(found, `${name} leads to ${found.slice(0, MOST_NAMED).join(', ')}`, hint)
}

async function addressesOf(name: string, lookups: Resolver): Promise<string[]> {
  const answers = await Promise.all([lookups.addresses(name, 4), lookups.addresses(name, 6)])
  return answers.flatMap(recordsIn)
}
