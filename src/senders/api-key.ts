/**
 * API keys: who may call, from where, and what they may do (contract.md 3).
 *
 * A key is `sk_live_` or `sk_test_` and 40 random characters: 238 bits, so an unsalted SHA-256 is enough to keep it,
 * and the lookup by that hash tells a guesser nothing about how near the guess was. The key itself is shown once, at
 * creation; afterwards only its last four characters are.
 *
 * A key that was found is remembered for 5 s, so that a busy sender costs no read per request: a revocation holds after
 * 5 s at the latest. Expiry and address are judged on every call. Throws ServiceError.
 */
import { createHash, randomInt } from 'node:crypto'
import { SECOND, toUnixSeconds } from '../base/clock.ts'
import type { Clock } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { newIdentifier } from '../base/identifier.ts'
import { isCidr, isInNetwork } from '../base/ip-address.ts'
import type { ApiKeyRecord } from '../store/records.ts'
import type { Store } from '../store/store.ts'
import { readDomainName } from './domain-name.ts'

/** What each scope grants is in the table of contract.md 3; `admin` grants everything. */
export const SCOPES = ['send', 'messages:read', 'domains', 'webhooks', 'ips', 'stats', 'suppressions', 'admin'] as const
export type Scope = (typeof SCOPES)[number]

export interface CreateKeyRequest {
  name: string
  mode: 'live' | 'test'
  scopes: string[]
  /** Sending domains; empty: all. */
  domains: string[]
  /** Networks such as 203.0.113.0/24, or single addresses; empty: all. */
  allowedIps: string[]
  /** Unix milliseconds; null: never. */
  expiresAt: number | null
}

export interface ApiKeys {
  /** The only time that the key is seen. ServiceError `invalid_request` lists every problem. */
  create(request: CreateKeyRequest): Promise<{ key: string; record: ApiKeyRecord }>
  /** ServiceError `unauthorized` says why, and shows the last four characters at most. */
  authenticate(key: string, remoteAddress: string): Promise<ApiKeyRecord>
}

const PREFIXES = { live: 'sk_live_', test: 'sk_test_' } as const
const KEY_CHARACTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const KEY_RANDOM_LENGTH = 40
// A whole key: its prefix and 40 letters and digits.
const KEY = /^sk_(?:live|test)_[0-9A-Za-z]{40}$/
const NO_KEY = 'the key is not sk_live_ or sk_test_ and 40 letters and digits'
const NO_TEST_KEYS = 'mode: this server has nowhere to capture the mail of test keys; make a live key'
const SHOWN_CHARACTERS = 4
const REMEMBERED_MILLISECONDS = 5 * SECOND
const MOST_REMEMBERED = 1_000
const MOST_NAME_CHARACTERS = 100
// Every control character.
const CONTROL = /\p{Cc}/u

export function hasScope(record: Pick<ApiKeyRecord, 'scopes'>, scope: Scope): boolean {
  return record.scopes.includes('admin') || record.scopes.includes(scope)
}

export interface ApiKeysOptions {
  store: Store
  clock: Clock
  /** Whether mail of test keys stays on this machine; where it would not, none are made. */
  allowsTestKeys: boolean
}

export function createApiKeys({ store, clock, allowsTestKeys }: ApiKeysOptions): ApiKeys {
  const remembered = new Map<string, { record: ApiKeyRecord; until: number }>()

  async function find(key: string): Promise<ApiKeyRecord | null> {
    const hash = hashOf(key)
    const text = hash.toString('base64')
    const known = remembered.get(text)
    if (known !== undefined && known.until > clock.now()) return known.record
    remembered.delete(text)
    const record = await store.findApiKey(hash)
    if (record === null) return null
    // Keys nobody knows are not remembered, so guesses cannot push the real ones out.
    if (remembered.size >= MOST_REMEMBERED) remembered.clear()
    remembered.set(text, { record, until: clock.now() + REMEMBERED_MILLISECONDS })
    return record
  }

  return {
    async create(request) {
      const now = clock.now()
      if (request.mode === 'test' && !allowsTestKeys) throw new ServiceError('invalid_request', NO_TEST_KEYS)
      const checked = readRequest(request, now)
      const prefix = PREFIXES[request.mode]
      const key = prefix + randomCharacters()
      const record: ApiKeyRecord = {
        ...checked, id: newIdentifier('key', now), prefix, last4: lastCharacters(key), createdAt: now, revokedAt: null,
      }
      await store.addApiKey(record, hashOf(key))
      return { key, record }
    },

    async authenticate(key, remoteAddress) {
      // Not shown, not even its end: what somebody sent by mistake may be another secret.
      if (!KEY.test(key)) throw new ServiceError('unauthorized', NO_KEY)
      const record = await find(key)
      const shown = lastCharacters(key)
      if (record === null) throw new ServiceError('unauthorized', `no such key ending in ${shown}`)
      const problem = useProblem(record, remoteAddress, clock.now())
      if (problem !== undefined) throw new ServiceError('unauthorized', `Key ending in ${shown} ${problem}.`)
      return record
    },
  }
}

function useProblem(record: ApiKeyRecord, remoteAddress: string, now: number): string | undefined {
  const { revokedAt, expiresAt, allowedIps } = record
  if (revokedAt !== null) return `was revoked at ${toUnixSeconds(revokedAt)}`
  if (expiresAt !== null && expiresAt <= now) return `expired at ${toUnixSeconds(expiresAt)}`
  const isAllowedHere = allowedIps.length === 0 || allowedIps.some((network) => isInNetwork(remoteAddress, network))
  return isAllowedHere ? undefined : `may not be used from ${remoteAddress}`
}

type CheckedRequest = Pick<ApiKeyRecord, 'name' | 'mode' | 'scopes' | 'domains' | 'allowedIps' | 'expiresAt'>

function readRequest(request: CreateKeyRequest, now: number): CheckedRequest {
  const { name, mode, expiresAt } = request
  const problems = nameProblems(name)
  if (request.scopes.length === 0) problems.push('scopes: at least one is needed')
  request.scopes.forEach((scope, index) => {
    if (!isScope(scope)) problems.push(`scopes[${index}]: unknown; known are ${SCOPES.join(', ')}`)
  })
  const domains = request.domains.map((text, index) => {
    const reading = readDomainName(text)
    if (reading.ok) return reading.name
    problems.push(`domains[${index}]: ${reading.problem}`)
    return text
  })
  request.allowedIps.forEach((network, index) => {
    if (!isCidr(network)) problems.push(`allowed_ips[${index}]: is no address and no network such as 203.0.113.0/24`)
  })
  if (expiresAt !== null && !(expiresAt > now)) problems.push('expires_at: must be in the future')
  if (problems.length > 0) throw new ServiceError('invalid_request', problems.join('; '))
  const scopes = [...new Set(request.scopes)]
  return { name, mode, scopes, domains: [...new Set(domains)], allowedIps: [...new Set(request.allowedIps)], expiresAt }
}

function nameProblems(name: string): string[] {
  const problems: string[] = []
  const isOfLength = name !== '' && [...name].length <= MOST_NAME_CHARACTERS
  if (!isOfLength) problems.push(`name: must have 1 to ${MOST_NAME_CHARACTERS} characters`)
  if (CONTROL.test(name)) problems.push('name: has a control character')
  if (!name.isWellFormed()) problems.push('name: has an unpaired surrogate')
  return problems
}

function isScope(text: string): text is Scope {
  return SCOPES.some((scope) => scope === text)
}

/** SHA-256 of the whole key. */
function hashOf(key: string): Buffer {
  return createHash('sha256').update(key).digest()
}

/** `randomInt` has no bias towards any character. */
function randomCharacters(): string {
  return Array.from({ length: KEY_RANDOM_LENGTH }, () => KEY_CHARACTERS[randomInt(KEY_CHARACTERS.length)]).join('')
}

function lastCharacters(key: string): string {
  return key.slice(-SHOWN_CHARACTERS)
}
