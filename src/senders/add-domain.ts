/**
 * A request to add a sending domain -> its record with new DKIM keys (http/README.md "Domains"). Throws ServiceError
 * `invalid_request` that lists all problems, and `conflict` when there are too many. Makes no key for a domain that is
 * there already.
 */
import { ServiceError } from '../base/errors.ts'
import type { DkimKeyRecord, DomainRecord, DomainTracking } from '../store/records/sender-records.ts'
import { createDkimKey, newSelector, readPrivateKey } from './records/dkim-keys.ts'
import type { DomainParts } from './domain-parts.ts'
import { isHostLabel, MOST_NAME_CHARACTERS, readDomainName } from './domain-name.ts'

export interface AddDomainRequest {
  name: string
  /** Label below the domain; left out: `bounces`. */
  returnPath?: string | undefined
  /** Label below the domain; left out: `t`. */
  trackingDomain?: string | undefined
  /** What is left out is as in the configuration. */
  tracking?: TrackingRequest | undefined
  /** DKIM selector; left out: a random one. */
  selector?: string | undefined
  /** RSA of 2048 to 4096 bits; left out: a new key. */
  privateKeyPem?: string | undefined
  allowSubdomains?: boolean | undefined
  /** Name of a pool; left out: the default pool. */
  ipPool?: string | undefined
}

export interface TrackingRequest {
  opens?: boolean | undefined
  clicks?: boolean | undefined
}

const DEFAULT_RETURN_PATH = 'bounces'
const DEFAULT_TRACKING_DOMAIN = 't'
const UNCHECKED = { verifiedAt: null, lastCheckedAt: null, failingSince: null, failedChecks: 0, degradedAt: null }
const LABEL_RULE = 'is not one label of letters, digits and hyphens'

export async function addDomain(
  request: AddDomainRequest,
  parts: DomainParts,
): Promise<{ domain: DomainRecord; isNew: boolean }> {
  const { store, clock, mostDomains, settings } = parts
  const read = readRequest(request, parts)
  const { name, returnPath, trackingDomain, tracking, allowSubdomains, ipPool } = read
  const known = await store.findDomain(name)
  if (known !== null) return { domain: known, isNew: false }
  const keys = await newKeys(read, parts)
  const now = clock.now()
  const domain: DomainRecord = {
    name,
    tracking,
    allowSubdomains,
    ipPool,
    keys,
    state: 'pending',
    returnPath: `${returnPath}.${name}`,
    trackingDomain: `${trackingDomain}.${name}`,
    createdAt: now,
    nextCheckAt: now + settings.recheck_pending,
    ...UNCHECKED,
    checks: [],
  }
  return store.addDomain(domain, mostDomains)
}

/** The Ed25519 key waits as `next` until it is published: nobody has to. */
function newKeys({ name, selector, privateKey }: ReadRequest, parts: DomainParts): Promise<DkimKeyRecord[]> {
  const {
    keyRing,
    clock,
    settings: { dkim },
  } = parts
  const shared = { keyRing, domain: name, bits: dkim.bits, now: clock.now() }
  const keys = [createDkimKey({ ...shared, selector, algorithm: 'rsa-sha256', role: 'active', privateKey })]
  if (dkim.ed25519) {
    const second = newSelector([selector])
    keys.push(createDkimKey({ ...shared, selector: second, algorithm: 'ed25519-sha256', role: 'next' }))
  }
  return Promise.all(keys)
}

type ReadRequest = ReturnType<typeof readRequest>

function readRequest(request: AddDomainRequest, { poolNames, tracking, facts }: DomainParts) {
  const problems: string[] = []
  const reading = readDomainName(request.name)
  if (!reading.ok) problems.push(`domain: ${reading.problem}`)
  const returnPath = (request.returnPath ?? DEFAULT_RETURN_PATH).toLowerCase()
  const trackingDomain = (request.trackingDomain ?? DEFAULT_TRACKING_DOMAIN).toLowerCase()
  const selector = (request.selector ?? newSelector()).toLowerCase()
  if (!isHostLabel(returnPath)) problems.push(`return_path: ${LABEL_RULE}`)
  if (!isHostLabel(trackingDomain)) problems.push(`tracking_domain: ${LABEL_RULE}`)
  if (trackingDomain === returnPath) problems.push('tracking_domain: is the same name as return_path')
  if (!isHostLabel(selector)) problems.push(`dkim_selector: ${LABEL_RULE}`)
  if (reading.ok) {
    const { name } = reading
    const aliases = { return_path: `${returnPath}.${name}`, tracking_domain: `${trackingDomain}.${name}` }
    problems.push(...aliasProblems(aliases, facts.hostname))
    problems.push(...lengthProblems(name, [`${selector}._domainkey`, returnPath, trackingDomain]))
  }
  const key = request.privateKeyPem === undefined ? undefined : readPrivateKey(request.privateKeyPem)
  if (key?.ok === false) problems.push(`dkim_private_key: ${key.problem}`)
  const ipPool = request.ipPool ?? null
  problems.push(...poolProblems(ipPool, poolNames()))
  if (problems.length > 0 || !reading.ok) throw new ServiceError('invalid_request', problems.join('; '))
  return {
    name: reading.name,
    returnPath,
    trackingDomain,
    selector,
    ipPool,
    tracking: trackingOf(request.tracking, tracking),
    privateKey: key?.ok === true ? key.key : undefined,
    allowSubdomains: request.allowSubdomains ?? false,
  }
}

/** The CNAME would take the place of the addresses of this server, which our targets lead to. */
function aliasProblems(names: Record<'return_path' | 'tracking_domain', string>, hostname: string): string[] {
  const taken = Object.entries(names).filter(([, name]) => name === hostname.toLowerCase())
  return taken.map(([field, name]) => `${field}: ${name} is the host name of this server, which cannot be an alias`)
}

function lengthProblems(domain: string, hosts: string[]): string[] {
  const isTooLong = hosts.some((host) => `${host}.${domain}`.length > MOST_NAME_CHARACTERS)
  return isTooLong ? [`domain: the names of its records would have more than ${MOST_NAME_CHARACTERS} characters`] : []
}

/** What is asked for, the rest as it was. */
export function trackingOf(request: TrackingRequest | undefined, before: DomainTracking): DomainTracking {
  return { opens: request?.opens ?? before.opens, clicks: request?.clicks ?? before.clicks }
}

export function poolProblems(pool: string | null, known: string[]): string[] {
  if (pool === null || known.includes(pool)) return []
  return [`ip_pool: there is no such pool; known are ${known.join(', ')}`]
}
