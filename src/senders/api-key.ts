/**
 * API keys: who may call, from where, and what they may do (http/README.md "Keys and scopes", senders/README.md
 * "Secrets"). Throws ServiceError.
 */
import { hash, randomInt } from 'node:crypto'
import { MINUTE, SECOND, toUnixSeconds, type Clock } from '../base/clock.ts'
import { errorText, ServiceError } from '../base/errors.ts'
import { identifierToBytes, newIdentifier } from '../base/identifier.ts'
import { isCidr, isInNetwork } from '../base/ip-address.ts'
import type { Logger } from '../base/logger.ts'
import type { ApiKeyChange, ApiKeyRecord } from '../store/records/sender-records.ts'
import type { Store } from '../store/store.ts'
import { readDomainName } from './domain-name.ts'

export type { ApiKeyChange, ApiKeyRecord } from '../store/records/sender-records.ts'

export type ApiKeys = ReturnType<typeof createApiKeys>

const PREFIXES = { live: 'sk_live_', test: 'sk_test_' } as const
const KEY_CHARACTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
const KEY_RANDOM_LENGTH = 40
// A whole key: its prefix and 40 letters and digits.
const KEY = /^sk_(?:live|test)_[0-9A-Za-z]{40}$/
const NO_KEY = 'the key is not sk_live_ or sk_test_ and 40 letters and digits'
const SHOWN_CHARACTERS = 4
const REMEMBERED_MILLISECONDS = 5 * SECOND
const MOST_REMEMBERED = 1_000
const NOTED_EVERY_MILLISECONDS = 5 * MINUTE

export function hasScope(record: Pick<ApiKeyRecord, 'scopes'>, scope: Scope): boolean {
  return record.scopes.includes('admin') || record.scopes.includes(scope)
}

interface ApiKeysOptions {
  store: Store
  clock: Clock
  /** Living keys; null: no limit. */
  mostKeys: number | null
  logger: Logger
}

export function createApiKeys({ store, clock, mostKeys, logger }: ApiKeysOptions) {
  const finder = createKeyFinder(store, clock)
  const use = createKeyUse({ store, clock, logger })

  async function findById(id: string): Promise<ApiKeyRecord> {
    return known(id, isKeyId(id) ? await store.findApiKeyById(id) : null)
  }

  return {
    /**
     * The only time that the key is seen. ServiceError `invalid_request` lists every problem, `conflict`: too many
     * keys.
     */
    async create(request: CreateKeyRequest) {
      const key = PREFIXES[request.mode] + randomCharacters()
      const record = newRecord(request, key, clock.now())
      await store.addApiKey(record, Buffer.from(hashOf(key), 'base64'), mostKeys)
      return { key, record }
    },

    /** Newest first, revoked ones too. ServiceError `invalid_request` for a cursor that is none. */
    list: (limit: number, after: string | null) => store.listApiKeys(limit, after),
    /** ServiceError `not_found`, here and below. */
    find: findById,
    /** Another node has changed keys. */
    forgetAll: finder.forgetAll,
    /** Still in force, for the same sending domains: asked by what goes on after it was authenticated. */
    async isValid(id: string, domains: readonly string[]) {
      const record = await store.findApiKeyById(id)
      const isAlive = record?.revokedAt === null && (record.expiresAt ?? Infinity) > clock.now()
      return isAlive && record.domains.join() === domains.join()
    },

    /**
     * Scopes and mode never change. ServiceError `invalid_request` lists every problem. With `keepsAdmin`, `conflict`
     * when it would expire earlier, and no live key that may administer would be left then.
     */
    async change(id: string, change: ApiKeyChange, { keepsAdmin }: { keepsAdmin: boolean }) {
      const given = { ...(await findById(id)), ...change, expiresAt: change.expiresAt ?? null }
      const { name, domains, allowedIps } = checkKey(given, clock.now())
      // What was not given stays, also when somebody else changes it now.
      const changed: ApiKeyChange = { ...change }
      if (change.name !== undefined) changed.name = name
      if (change.domains !== undefined) changed.domains = domains
      if (change.allowedIps !== undefined) changed.allowedIps = allowedIps
      const record = known(id, await store.updateApiKey(id, changed, keepsAdmin ? clock.now() : undefined))
      finder.forget(id)
      return record
    },

    /**
     * Holds at once; a second time changes nothing. With `keepsAdmin`, ServiceError `conflict` when it is the last live
     * key that may administer.
     */
    async revoke(id: string, { keepsAdmin }: { keepsAdmin: boolean }) {
      if (!isKeyId(id)) throw unknownKey(id)
      const record = known(id, await store.revokeApiKey(id, clock.now(), keepsAdmin))
      finder.forget(id)
      return record
    },

    /** ServiceError `unauthorized` says why, and shows the last four characters at most. */
    async authenticate(key: string, remoteAddress: string) {
      // Not shown, not even its end: what somebody sent by mistake may be another secret.
      if (!KEY.test(key)) throw new ServiceError('unauthorized', NO_KEY)
      const record = await finder.find(key)
      const shown = lastCharacters(key)
      if (record === null) throw new ServiceError('unauthorized', `no such key ending in ${shown}`)
      return use(record, remoteAddress)
    },
    /** Or nobody has it. One that expired, or is for other addresses, is neither: its owner can change that. */
    async isRevoked(key: string) {
      return (await finder.find(key))?.revokedAt !== null
    },
    /** The key as it is now, for a session that was opened with it. ServiceError `unauthorized`. */
    usable: async (id: string, remoteAddress: string) => use(await findById(id), remoteAddress),
  }
}

/** Lets a key be used, and notes when: within five minutes. ServiceError `unauthorized` when it may not be. */
function createKeyUse({ store, clock, logger }: Pick<ApiKeysOptions, 'store' | 'clock' | 'logger'>) {
  /** `record` is the remembered one: it knows at once, the store soon after. */
  function noteUse(record: ApiKeyRecord): void {
    const at = clock.now()
    if (record.lastUsedAt !== null && at - record.lastUsedAt < NOTED_EVERY_MILLISECONDS) return
    record.lastUsedAt = at
    store.noteKeyUse([{ id: record.id, at }]).catch((thrown: unknown) => {
      logger.warn({ key_id: record.id, error: errorText(thrown) }, 'use of a key not noted')
    })
  }

  return (record: ApiKeyRecord, remoteAddress: string): ApiKeyRecord => {
    const problem = useProblem(record, remoteAddress, clock.now())
    if (problem !== undefined) throw new ServiceError('unauthorized', `Key ending in ${record.last4} ${problem}.`)
    noteUse(record)
    return record
  }
}

function newRecord(request: CreateKeyRequest, key: string, now: number): ApiKeyRecord {
  return {
    ...checkKey(request, now),
    id: newIdentifier('key', now),
    prefix: PREFIXES[request.mode],
    last4: lastCharacters(key),
    createdAt: now,
    lastUsedAt: null,
    revokedAt: null,
  }
}

function useProblem(record: ApiKeyRecord, remoteAddress: string, now: number): string | undefined {
  const { revokedAt, expiresAt, allowedIps } = record
  if (revokedAt !== null) return `was revoked at ${toUnixSeconds(revokedAt)}`
  if (expiresAt !== null && expiresAt <= now) return `expired at ${toUnixSeconds(expiresAt)}`
  const isAllowedHere = allowedIps.length === 0 || allowedIps.some((network) => isInNetwork(remoteAddress, network))
  return isAllowedHere ? undefined : `may not be used from ${remoteAddress}`
}

/** Remembers what it found for 5 s. */
function createKeyFinder(store: Pick<Store, 'findApiKey'>, clock: Clock) {
  const remembered = new Map<string, { record: ApiKeyRecord; until: number }>()
  let changes = 0
  return {
    /** Null: nobody has this key. */
    async find(key: string): Promise<ApiKeyRecord | null> {
      const text = hashOf(key)
      const entry = remembered.get(text)
      if (entry !== undefined && entry.until > clock.now()) return entry.record
      remembered.delete(text)
      const changesBefore = changes
      const record = await store.findApiKey(Buffer.from(text, 'base64'))
      // What was read before a change may be what was changed. Keys that nobody knows are not remembered, so guesses
      // cannot push the real ones out.
      if (changes !== changesBefore || record === null) return record
      if (remembered.size >= MOST_REMEMBERED) remembered.clear()
      remembered.set(text, { record, until: clock.now() + REMEMBERED_MILLISECONDS })
      return record
    },
    forgetAll() {
      changes += 1
      remembered.clear()
    },
    /** The key with this id has changed. */
    forget(id: string) {
      changes += 1
      for (const [text, { record }] of remembered) if (record.id === id) remembered.delete(text)
    },
  }
}

function isKeyId(text: string): boolean {
  return identifierToBytes('key', text) !== undefined
}

function known(id: string, record: ApiKeyRecord | null): ApiKeyRecord {
  if (record === null) throw unknownKey(id)
  return record
}

export function unknownKey(id: string): ServiceError {
  // Enough to show any real id whole.
  return new ServiceError('not_found', `key ${id.slice(0, 64)}`)
}

function hashOf(key: string): string {
  return hash('sha256', key, 'base64')
}

/** `randomInt` has no bias towards any character. */
function randomCharacters(): string {
  return Array.from({ length: KEY_RANDOM_LENGTH }, () => KEY_CHARACTERS[randomInt(KEY_CHARACTERS.length)]).join('')
}

function lastCharacters(key: string): string {
  return key.slice(-SHOWN_CHARACTERS)
}

/** What each scope grants is in the table of http/README.md "Keys and scopes"; `admin` grants everything. */
export const SCOPES = ['send', 'messages:read', 'domains', 'webhooks', 'ips', 'stats', 'suppressions', 'admin'] as const
export type Scope = (typeof SCOPES)[number]

export type CreateKeyRequest = Pick<ApiKeyRecord, 'name' | 'mode' | 'scopes' | 'domains' | 'allowedIps' | 'expiresAt'>

const MOST_NAME_CHARACTERS = 100
// Every control character.
const CONTROL = /\p{Cc}/u

/** Names in their canonical form, nothing twice. Throws ServiceError `invalid_request` with every problem. */
function checkKey(request: CreateKeyRequest, now: number): CreateKeyRequest {
  const { name, mode, expiresAt } = request
  const problems = nameProblems(name)
  if (request.scopes.length === 0) problems.push('scopes: at least one is needed')
  request.scopes.forEach((scope, index) => {
    if (!SCOPES.some((known) => known === scope))
      problems.push(`scopes[${index}]: unknown; known are ${SCOPES.join(', ')}`)
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
