/**
 * The roles of a DKIM key from its making to its end (senders/README.md "States of a domain"). Each algorithm goes its
 * own way: an Ed25519 key that nobody publishes holds up no RSA key. Pure.
 */
import { DAY, MINUTE } from '../../base/clock.ts'
import type { DkimAlgorithm, DkimKeyRecord, DomainRecord, RecordCheck } from '../../store/records/sender-records.ts'

const SEEN_FOR = 10 * MINUTE
const RETIRING_FOR = 7 * DAY

/** The keys of the domain after a check. */
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
      return key.seenAt ?? now
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
