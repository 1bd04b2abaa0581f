/**
 * One check of a domain: ask the DNS for 10 s at most, then record what it said (contract.md 7.3 and 7.4).
 *
 * Moves `pending` to `verified` when every required record is verified, and never takes anything away. Where two checks
 * of a domain overlap, the one that began last is recorded and the other only reads. Errors of the store are passed on.
 */
import { SECOND } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import type { Resolver } from '../network/resolver.ts'
import type { DomainRecord } from '../store/records.ts'
import type { Store } from '../store/store.ts'
import { createCheckLookups } from './lookup-records.ts'
import type { RecordFacts } from './required-records.ts'
import { checkDomain, REQUIRED_PURPOSES } from './verify-domain.ts'

const MOST_CHECK_MILLISECONDS = 10 * SECOND

export interface DomainCheckOptions {
  store: Store
  clock: Clock
  resolver: Resolver
  facts: RecordFacts
  ipsOf: (domain: DomainRecord) => string[]
}

export type CheckDomain = (domain: DomainRecord) => Promise<DomainRecord>

export function createDomainCheck({ store, clock, resolver, facts, ipsOf }: DomainCheckOptions): CheckDomain {
  const begun = new Map<string, number>()
  let counter = 0

  return async (domain) => {
    const turn = ++counter
    begun.set(domain.name, turn)
    const lookups = createCheckLookups({ resolver, clock, mostMilliseconds: MOST_CHECK_MILLISECONDS })
    const checkFacts = { ...facts, ips: ipsOf(domain) }
    const checks = await checkDomain(domain, lookups, checkFacts, clock.now()).finally(lookups.end)
    const latest = (await store.findDomain(domain.name)) ?? domain
    const isOvertaken = begun.get(domain.name) !== turn
    if (isOvertaken) return latest
    begun.delete(domain.name)
    const allSeen = REQUIRED_PURPOSES.every((purpose) =>
      checks.some((check) => check.purpose === purpose && check.status === 'verified'),
    )
    const state = latest.state === 'pending' && allSeen ? 'verified' : latest.state
    return (await store.recordDomainCheck({ name: domain.name, now: clock.now(), state, checks })) ?? latest
  }
}
