/**
 * Changes of a sending domain that is there: its settings, its next DKIM keys, its end (http/README.md "Domains"), one
 * at a time. Throws ServiceError `not_found`, `invalid_request` and `conflict`.
 */
import { ServiceError } from '../base/errors.ts'
import type { DkimAlgorithm, DkimKeyRecord, DomainChange, DomainRecord } from '../store/records/sender-records.ts'
import { poolProblems, trackingOf, type TrackingRequest } from './add-domain.ts'
import type { DomainParts } from './domain-parts.ts'
import { createDkimKey, dkimKeyOpens, newSelector } from './records/dkim-keys.ts'
import { algorithmsToRotate, isRotating } from './records/domain-state.ts'
import { readDomainName } from './domain-name.ts'

/** What is left out stays as it is. */
export interface UpdateDomainRequest {
  tracking?: TrackingRequest | undefined
  /** Name of a pool; null: the default pool. */
  ipPool?: string | null | undefined
  allowSubdomains?: boolean | undefined
}

/** Does the work, which changes this domain: nothing remembered of it holds any more. */
type Changing = <Result>(name: string, work: () => Promise<Result>) => Promise<Result>

export function createDomainChanges(parts: DomainParts, changing: Changing) {
  const { store, clock, poolNames, inTurn } = parts

  /** `work` resolves with null for a domain that is not there. */
  async function change<Result>(name: string, work: (name: string) => Promise<Result | null>): Promise<Result> {
    const reading = readDomainName(name)
    const result = reading.ok
      ? await inTurn(reading.name, () => changing(reading.name, () => work(reading.name)))
      : null
    if (result === null) throw unknownDomain(name)
    return result
  }

  return {
    update(name: string, request: UpdateDomainRequest) {
      return change(name, async (known) => {
        const problems = poolProblems(request.ipPool ?? null, poolNames())
        if (problems.length > 0) throw new ServiceError('invalid_request', problems.join('; '))
        const before = await store.findDomain(known)
        return before && store.updateDomain(known, changeOf(request, before))
      })
    },
    /** A next key that was sealed with another master key could never sign: it makes room for a new one. */
    rotateDkim(name: string) {
      return change(name, async (known) => {
        const before = await store.findDomain(known)
        if (before === null) return null
        const opens = dkimKeyOpens(parts.keyRing, known)
        const foreign = before.keys.filter((key) => key.role === 'next' && !opens(key))
        const usable = before.keys.filter((key) => !foreign.includes(key))
        if (isRotating(usable)) {
          throw new ServiceError('conflict', `${known}: the next DKIM key is there already and waits to be seen`)
        }
        const making = algorithmsToRotate(usable, parts.settings.dkim.ed25519 || signsWithEd25519(usable))
        return store.addDkimKeys(known, await nextKeys(before, making, parts), selectorsOf(foreign))
      })
    },
    /** As the API answers it; the messages that waited drain, or are canceled. */
    remove(name: string, { purge }: { purge: boolean }) {
      return change(name, async (known) => {
        const removed = await store.removeDomain({ name: known, now: clock.now(), purge })
        return removed && { domain: known, deleted: true as const, queued_messages: removed.queuedMessages }
      })
    },
  }
}

export function unknownDomain(name: string): ServiceError {
  return new ServiceError('not_found', `domain ${name}`)
}

function changeOf(request: UpdateDomainRequest, before: DomainRecord): DomainChange {
  const { ipPool, allowSubdomains } = request
  return {
    tracking: trackingOf(request.tracking, before.tracking),
    ...(ipPool === undefined ? {} : { ipPool }),
    ...(allowSubdomains === undefined ? {} : { allowSubdomains }),
  }
}

function signsWithEd25519(keys: readonly DkimKeyRecord[]): boolean {
  return keys.some((key) => key.algorithm === 'ed25519-sha256' && key.role === 'active')
}

/** Of RSA, and of Ed25519 where that is wanted or signs already. */
function nextKeys(
  { name: domain, keys }: DomainRecord,
  algorithms: readonly DkimAlgorithm[],
  { keyRing, clock, settings: { dkim } }: DomainParts,
): Promise<DkimKeyRecord[]> {
  const taken = selectorsOf(keys)
  const making = algorithms.map((algorithm) => {
    const selector = newSelector(taken)
    taken.push(selector)
    return createDkimKey({ keyRing, domain, selector, algorithm, bits: dkim.bits, role: 'next', now: clock.now() })
  })
  return Promise.all(making)
}

function selectorsOf(keys: readonly DkimKeyRecord[]): string[] {
  return keys.map(({ selector }) => selector)
}
