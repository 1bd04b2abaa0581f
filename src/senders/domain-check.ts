/**
 * One check of a domain: ask the DNS for less than 10 s, then record what it said and what follows from it for the
 * domain's state and its keys (senders/README.md "States of a domain", http/README.md "Domains").
 *
 * Where two checks of a domain overlap, the one that began last is recorded and the other only reads; so it is with a
 * domain that was removed meanwhile, or removed and added anew. Resolves with null when it is gone. Errors of the store
 * are passed on.
 */
import { SECOND } from '../base/clock.ts'
import { newIdentifier } from '../base/identifier.ts'
import type { ServiceEvent } from '../mail/event.ts'
import type { DomainRecord, RecordCheck } from '../store/records/sender-records.ts'
import type { DomainParts } from './domain-parts.ts'
import { keysAfterCheck } from './records/dkim-rotation.ts'
import { standingAfterCheck, type DomainStanding } from './records/domain-state.ts'
import { createCheckLookups } from './verification/lookup-records.ts'
import { REQUIRED_PURPOSES } from './records/required-records.ts'
import { checkDomain } from './verification/verify-domain.ts'

/** Leaves the rest of the 10 s to recording and answering. */
const MOST_CHECK_MILLISECONDS = 9 * SECOND

export type CheckDomain = (domain: DomainRecord) => Promise<DomainRecord | null>

export function createDomainCheck(parts: DomainParts): CheckDomain {
  const { store, clock, realClock, resolver, facts, ipsOf, inTurn } = parts
  const begun = new Map<string, number>()
  let counter = 0

  return async (domain) => {
    const turn = ++counter
    begun.set(domain.name, turn)
    const earlierKeys = await store.earlierDkimKeys(domain.name)
    const lookups = createCheckLookups({ resolver, clock: realClock, mostMilliseconds: MOST_CHECK_MILLISECONDS })
    const checkFacts = { ...facts, ips: ipsOf(domain), earlierKeys }
    const checks = await checkDomain(domain, lookups, checkFacts, clock.now()).finally(lookups.end)
    return inTurn(domain.name, async () => {
      const latest = await store.findDomain(domain.name)
      const isOvertaken = begun.get(domain.name) !== turn
      if (latest === null || isOvertaken || !isSameDomain(latest, domain)) return latest
      begun.delete(domain.name)
      return record(latest, checks, parts)
    })
  }
}

/** A domain that was added anew has other keys. */
function isSameDomain(latest: DomainRecord, checked: DomainRecord): boolean {
  return latest.keys.some((key) => checked.keys.some(({ publicKey }) => publicKey === key.publicKey))
}

async function record(
  domain: DomainRecord,
  checks: RecordCheck[],
  { store, clock, settings, logger, onEvents }: DomainParts,
): Promise<DomainRecord | null> {
  const now = clock.now()
  const keys = keysAfterCheck(domain, checks, now)
  const standing = standingAfterCheck({ ...domain, keys }, checks, settings, now)
  const events = eventsOf(domain, standing, checks, now)
  const recorded = await store.recordDomainCheck({ name: domain.name, now, checks, keys, events, ...standing })
  if (standing.state !== domain.state) {
    logger.info({ domain: domain.name, from: domain.state, to: standing.state }, 'domain state changed')
  }
  for (const { selector, role } of keys) {
    const before = domain.keys.find((key) => key.selector === selector)
    if (before?.role !== role) logger.info({ domain: domain.name, selector, role }, 'DKIM key changed its role')
  }
  if (events.length > 0) onEvents()
  return recorded
}

/** `domain.degraded` is told a second time, with the status `failed`, when the domain stops sending. */
function eventsOf(
  { name, state }: DomainRecord,
  after: DomainStanding,
  checks: readonly RecordCheck[],
  now: number,
): ServiceEvent[] {
  if (after.state === state) return []
  const id = newIdentifier('evt', now)
  if (after.state === 'verified') {
    return [{ id, kind: 'domain.verified', at: now, data: { domain: name, status: after.state } }]
  }
  const wrong = checks.find(
    ({ purpose, status }) =>
      REQUIRED_PURPOSES.some((each) => each === purpose) && (status === 'failed' || status === 'pending'),
  )
  const data = { domain: name, status: after.state, record: wrong?.purpose ?? '', error: wrong?.error ?? '' }
  return [{ id, kind: 'domain.degraded', at: now, data }]
}
