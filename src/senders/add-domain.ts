/**
 * A request to add a sending domain -> its record with a new DKIM key, or every problem of it (contract.md 7.1).
 *
 * Throws ServiceError `invalid_request` that lists all problems. Makes no key for a domain that is there already.
 */
import type { Clock } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { DomainRecord } from '../store/records.ts'
import type { Store } from '../store/store.ts'
import { createDkimKey, newSelector } from './dkim-keys.ts'
import { isHostLabel, readDomainName } from './domain-name.ts'

export interface AddDomainRequest {
  name: string
  /** Label below the domain; left out: `bounces`. */
  returnPath?: string | undefined
  /** DKIM selector; left out: a random one. */
  selector?: string | undefined
  /** Name of a pool; left out: the default pool. */
  ipPool?: string | undefined
}

export interface AddedDomain {
  domain: DomainRecord
  isNew: boolean
}

export interface DomainAdderOptions {
  store: Store
  clock: Clock
  keyRing: KeyRing
  keyBits: number
  poolNames: () => string[]
}

const DEFAULT_RETURN_PATH = 'bounces'

export async function addDomain(request: AddDomainRequest, options: DomainAdderOptions): Promise<AddedDomain> {
  const { store, clock, keyRing, keyBits, poolNames } = options
  const { name, returnPath, selector, ipPool } = readRequest(request, poolNames())
  const known = await store.findDomain(name)
  if (known !== null) return { domain: known, isNew: false }
  const key = await createDkimKey({ keyRing, domain: name, selector, bits: keyBits })
  return store.addDomain({
    name,
    state: 'pending',
    selector: key.selector,
    publicKey: key.publicKey,
    sealedPrivateKey: key.sealedPrivateKey,
    returnPath: `${returnPath}.${name}`,
    ipPool,
    createdAt: clock.now(),
    verifiedAt: null,
    lastCheckedAt: null,
    checks: [],
  })
}

interface ReadRequest {
  name: string
  returnPath: string
  selector: string
  ipPool: string | null
}

function readRequest(request: AddDomainRequest, poolNames: string[]): ReadRequest {
  const problems: string[] = []
  const reading = readDomainName(request.name)
  if (!reading.ok) problems.push(`domain: ${reading.problem}`)
  const returnPath = (request.returnPath ?? DEFAULT_RETURN_PATH).toLowerCase()
  const selector = (request.selector ?? newSelector()).toLowerCase()
  if (!isHostLabel(returnPath)) problems.push('return_path: is not one label of letters, digits and hyphens')
  if (!isHostLabel(selector)) problems.push('dkim_selector: is not one label of letters, digits and hyphens')
  const ipPool = request.ipPool ?? null
  if (ipPool !== null && !poolNames.includes(ipPool)) {
    problems.push(`ip_pool: there is no such pool; known are ${poolNames.join(', ')}`)
  }
  if (problems.length > 0 || !reading.ok) throw new ServiceError('invalid_request', problems.join('; '))
  return { name: reading.name, returnPath, selector, ipPool }
}
