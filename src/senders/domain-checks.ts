/**
 * When sending domains are checked: by a verify call, in the background after a change, and when their time has come
 * (senders/README.md "Checks of a domain"). A background check that fails is logged; one that was due stays due.
 */
import { SECOND } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { DomainRecord, RecordCheck } from '../store/records/sender-records.ts'
import { domainOfLinks } from './domain-of-links.ts'
import type { DomainParts } from './domain-parts.ts'
import { newIdentifier } from '../base/identifier.ts'
import type { ServiceEvent } from '../mail/event.ts'
import { dkimKeyOpens } from './records/dkim-keys.ts'
import { keysAfterCheck, standingAfterCheck, type DomainStanding } from './records/domain-state.ts'
import { createCheckLookups } from './verification/lookup-records.ts'
import { REQUIRED_PURPOSES } from './records/required-records.ts'
import { checkDomain } from './verification/verify-domain.ts'

/** Leaves the rest of the 10 s to recording and answering. */
const MOST_CHECK_MILLISECONDS = 9 * SECOND
const VERIFY_AGAIN_AFTER = 10 * SECOND
const SIDE_BY_SIDE = 8
/** After changes: each has some fifteen lookups, and whoever may change domains sets the pace. */
const MOST_IN_BACKGROUND = 50
/** In one run; what is left is due in the next minute still. */
const MOST_IN_ONE_RUN = 400

/** `onChecked`: something about a domain may be new. */
export function createDomainChecks(parts: DomainParts, onChecked: () => void) {
  const { store, clock } = parts
  const checkOne = createDomainCheck(parts)
  const lastCalls = new Map<string, { at: number; result: Promise<DomainRecord | null> }>()
  const background = createBackground(parts)
  let isStopped = false

  async function check(domain: DomainRecord): Promise<DomainRecord | null> {
    const checked = await checkOne(domain)
    onChecked()
    return checked
  }

  function forgetOldCalls(): void {
    const now = clock.now()
    for (const [name, { at }] of lastCalls) if (now - at >= VERIFY_AGAIN_AFTER) lastCalls.delete(name)
  }

  async function checkIfDue(name: string): Promise<void> {
    forgetOldCalls()
    // A verify call asks now, or has just done so: overtaken by this check it would answer with an older result.
    if (lastCalls.has(name)) return
    const domain = await store.findDomain(name)
    if (domain !== null) await check(domain)
  }

  /** Its name of tracked links has a certificate now. */
  async function checkLinks(name: string): Promise<void> {
    const domain = await domainOfLinks(store, name)
    if (domain !== null) await check(domain)
  }

  parts.linkCertificates?.onIssued((name) => background.start(name, () => checkLinks(name)))

  async function workOff(names: string[]): Promise<void> {
    for (let name = names.shift(); name !== undefined && !isStopped; name = names.shift()) {
      const due = name
      await background.run(due, () => checkIfDue(due))
    }
  }

  return {
    /** `checked` null: it is gone. */
    async verify(domain: DomainRecord) {
      forgetOldCalls()
      const last = lastCalls.get(domain.name)
      if (last !== undefined) return { checked: await last.result, isRepeated: true }
      const result = check(domain)
      lastCalls.set(domain.name, { at: clock.now(), result })
      // Only a result is kept: after a failure the next call asks again.
      result.catch(() => lastCalls.delete(domain.name))
      return { checked: await result, isRepeated: false }
    },
    /** In the background. */
    start: (domain: DomainRecord): void => background.start(domain.name, () => check(domain)),
    /** The domain has changed: what a verify call said of it no longer holds. */
    forget: (name: string) => void lastCalls.delete(name),
    /** Checks every domain whose time has come, a few side by side; ends with the last of them. */
    async runDue() {
      if (isStopped) return
      const names = await store.domainsDueForCheck(clock.now(), MOST_IN_ONE_RUN)
      await Promise.all(Array.from({ length: SIDE_BY_SIDE }, () => workOff(names)))
    },
    /** Starts no check any more and waits for those in the background. */
    async stop() {
      isStopped = true
      await background.ended()
    },
  }
}

/** Checks that nobody waits for: what fails is logged. Of each name one runs at a time, and the newest waits. */
function createBackground({ logger }: Pick<DomainParts, 'logger'>) {
  const waiting = new Map<string, () => Promise<unknown>>()
  const underWay = new Map<string, Promise<void>>()

  async function run(name: string, work: () => Promise<unknown>): Promise<void> {
    try {
      await work()
    } catch (thrown) {
      logger.error({ domain: name, error: errorText(thrown) }, 'domain check failed')
    }
  }

  function begin(): void {
    for (const [name, work] of waiting) {
      if (underWay.size >= MOST_IN_BACKGROUND) return
      if (underWay.has(name)) continue
      waiting.delete(name)
      const ended = (): void => {
        underWay.delete(name)
        begin()
      }
      underWay.set(name, run(name, work).then(ended))
    }
  }

  return {
    run,
    start(name: string, work: () => Promise<unknown>): void {
      waiting.set(name, work)
      begin()
    },
    /** Those that run; what waits is not begun any more. */
    async ended(): Promise<void> {
      waiting.clear()
      await Promise.all(underWay.values())
    },
  }
}

/**
 * One check of a domain: ask the DNS for less than 10 s, then record what it said and what follows from it for the
 * domain's state and its keys. Where two checks of a domain overlap, the one that began last is recorded and the other
 * only reads; so it is with a domain that was removed meanwhile, or removed and added anew. Null: it is gone.
 */
function createDomainCheck(parts: DomainParts): (domain: DomainRecord) => Promise<DomainRecord | null> {
  const { store, clock, realClock, keyRing, resolver, facts, linkCertificates, ipsOf, inTurn } = parts
  const begun = new Map<string, number>()
  let counter = 0

  return async (domain) => {
    const turn = ++counter
    begun.set(domain.name, turn)
    const earlierKeys = await store.earlierDkimKeys(domain.name)
    const lookups = createCheckLookups(resolver, realClock, MOST_CHECK_MILLISECONDS)
    const opensKey = dkimKeyOpens(keyRing, domain.name)
    const checkFacts = { ...facts, linkCertificates, ips: ipsOf(domain), earlierKeys, opensKey }
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
