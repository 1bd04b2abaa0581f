/**
 * What a check makes of a domain's state, and when the next one is due: the tables of senders/README.md "States of a
 * domain". Pure.
 */
import { createHash } from 'node:crypto'
import { DAY, HOUR, MINUTE } from '../../base/clock.ts'
import type { DkimKeyRecord, DomainRecord, RecordCheck, DkimAlgorithm } from '../../store/records/sender-records.ts'

const SEEN_FOR = 10 * MINUTE
const RETIRING_FOR = 7 * DAY

export interface StateSettings {
  recheck_pending: number
  recheck_verified: number
  degraded_grace: number
}

/** The part of a domain that a check may change, its keys and records apart. */
export type DomainStanding = ReturnType<typeof standingAfterCheck>

const MOST_FAILED_CHECKS = 3
const FAILING_FOR = 6 * HOUR
const RECHECK_BROKEN = 30 * MINUTE
/** How far the next check of a verified domain is moved at most, either way. */
const JITTER = 0.1

/** The keys of `domain` are those after the check. */
export function standingAfterCheck(
  domain: DomainRecord,
  checks: readonly RecordCheck[],
  settings: StateSettings,
  now: number,
) {
  const after = stateAfterCheck(domain, verdict(domain, checks), settings.degraded_grace, now)
  const { state, verifiedAt, failingSince, failedChecks, degradedAt } = after
  return { state, verifiedAt, failingSince, failedChecks, degradedAt, nextCheckAt: nextCheckAt(after, settings, now) }
}

type Verdict = 'right' | 'wrong' | 'unknown'

function verdict(domain: DomainRecord, checks: readonly RecordCheck[]): Verdict {
  const required = requiredChecks(domain, checks)
  const wasChecked = required.some((check) => check.purpose === 'dkim')
  if (wasChecked && required.every((check) => check.status === 'verified')) return 'right'
  return required.some((check) => check.status === 'pending' || check.status === 'failed') ? 'wrong' : 'unknown'
}

/** The checks of the records without which a domain does not send: those of the RSA key that signs, and the path. */
function requiredChecks(domain: DomainRecord, checks: readonly RecordCheck[]): RecordCheck[] {
  return checks.filter(({ purpose, selector }) => {
    if (purpose !== 'dkim') return purpose === 'return_path' || purpose === 'spf'
    return domain.keys.some((key) => key.selector === selector && isRequiredKey(key))
  })
}

export function isRequiredKey(key: DkimKeyRecord): boolean {
  return key.role === 'active' && key.algorithm === 'rsa-sha256'
}

function stateAfterCheck(domain: DomainRecord, found: Verdict, grace: number, now: number): DomainRecord {
  if (found === 'unknown' || domain.state === 'suspended') return domain
  if (found === 'right') {
    const verifiedAt = domain.state === 'verified' ? domain.verifiedAt : now
    return { ...domain, state: 'verified', verifiedAt, failingSince: null, failedChecks: 0, degradedAt: null }
  }
  // Not what a clock wrote that ran ahead and was set back.
  const failingSince = Math.min(domain.failingSince ?? now, now)
  const failedChecks = domain.failedChecks + 1
  const degradedAt = domain.degradedAt === null ? null : Math.min(domain.degradedAt, now)
  const failing = { ...domain, failingSince, failedChecks, degradedAt }
  const isDegraded = failedChecks >= MOST_FAILED_CHECKS && now - failingSince >= FAILING_FOR
  if (domain.state === 'verified' && isDegraded) return { ...failing, state: 'degraded', degradedAt: now }
  const isOver = domain.state === 'degraded' && now - (degradedAt ?? now) >= grace
  return isOver ? { ...failing, state: 'failed' } : failing
}

/** The earliest of what the state and the keys ask for. */
function nextCheckAt(domain: DomainRecord, settings: StateSettings, now: number): number | null {
  const interval = stateInterval(domain, settings, now)
  if (interval === null) return null
  const byKeys = domain.keys.flatMap((key) => {
    if (key.role === 'next') return [now + waitingInterval(now - key.createdAt, settings)]
    return key.retireAt === null ? [] : [Math.max(now + MINUTE, key.retireAt)]
  })
  return Math.min(now + interval, ...byKeys)
}

function stateInterval(domain: DomainRecord, settings: StateSettings, now: number): number | null {
  const { state, name, createdAt } = domain
  switch (state) {
    case 'pending':
      return waitingInterval(now - createdAt, settings)
    case 'verified':
      return jittered(settings.recheck_verified, name)
    case 'degraded':
    case 'failed':
      return RECHECK_BROKEN
    case 'suspended':
      return null
  }
}

/** How long until something that was never seen is looked for again, by how long it has been waited for. */
function waitingInterval(age: number, settings: Pick<StateSettings, 'recheck_pending'>): number {
  if (age < DAY) return settings.recheck_pending
  return age < 14 * DAY ? HOUR : DAY
}

/** Spreads domains that were verified together; the same for a domain each time. */
function jittered(interval: number, name: string): number {
  const share = createHash('sha256').update(name).digest().readUInt32BE(0) / 0xff_ff_ff_ff
  return Math.round(interval * (1 + JITTER * (2 * share - 1)))
}

/**
 * senders/README.md "States of a domain": a degraded domain keeps sending; a pending, failed or suspended one does not.
 */
export function canSend({ state }: Pick<DomainRecord, 'state'>): boolean {
  return state === 'verified' || state === 'degraded'
}

/* The roles of a DKIM key. Each algorithm goes its own way: an Ed25519 key that nobody publishes holds up no RSA key. */

export function keysAfterCheck(domain: DomainRecord, checks: readonly RecordCheck[], now: number): DkimKeyRecord[] {
  const seen = domain.keys.map((key) => ({ ...key, seenAt: seenAt(key, checks, now) }))
  const isReady = (key: DkimKeyRecord): boolean =>
    key.role === 'next' &&
    statusOf(key, checks) === 'verified' &&
    key.seenAt !== null &&
    (domain.verifiedAt === null || now - key.seenAt >= SEEN_FOR)
  const switching = new Set<DkimAlgorithm>(seen.filter(isReady).map((key) => key.algorithm))
  return seen.flatMap((key): DkimKeyRecord[] => {
    if (isReady(key)) return [{ ...key, role: 'active' }]
    if (key.role === 'active' && switching.has(key.algorithm)) {
      return [{ ...key, role: 'retiring', retireAt: now + RETIRING_FOR }]
    }
    const isOver = key.retireAt !== null && key.retireAt <= now
    return isOver ? [] : [key]
  })
}

/** Whether the next RSA key is there already: no other rotation may start. */
export function isRotating(keys: readonly DkimKeyRecord[]): boolean {
  return keys.some((key) => key.role === 'next' && key.algorithm === 'rsa-sha256')
}

/** The algorithms for which a rotation makes a key; one that waits to be seen for the first time goes on waiting. */
export function algorithmsToRotate(keys: readonly DkimKeyRecord[], withEd25519: boolean): DkimAlgorithm[] {
  const isWaiting = (algorithm: DkimAlgorithm): boolean =>
    keys.some((key) => key.algorithm === algorithm && key.role === 'next')
  const wanted: DkimAlgorithm[] = withEd25519 ? ['rsa-sha256', 'ed25519-sha256'] : ['rsa-sha256']
  return wanted.filter((algorithm) => !isWaiting(algorithm))
}

function seenAt(key: DkimKeyRecord, checks: readonly RecordCheck[], now: number): number | null {
  switch (statusOf(key, checks)) {
    case 'verified':
      return Math.min(key.seenAt ?? now, now)
    case 'pending':
    case 'failed':
      return key.role === 'next' ? null : key.seenAt
    case 'temporary_failure':
    case undefined:
      return key.seenAt
  }
}

function statusOf(key: DkimKeyRecord, checks: readonly RecordCheck[]): RecordCheck['status'] | undefined {
  return checks.find((check) => check.purpose === 'dkim' && check.selector === key.selector)?.status
}
