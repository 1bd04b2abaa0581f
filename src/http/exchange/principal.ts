/** Who asks: an API key, a person in the console, or the administrator on the admin socket. */
import { EVERYTHING, type Reach } from '../../mail/reach.ts'
import type { ApiKeyRecord } from '../../senders/api-key.ts'
import type { Person } from './logins.ts'

export interface Principal extends Pick<ApiKeyRecord, 'mode' | 'scopes' | 'domains' | 'allowedIps' | 'expiresAt'> {
  /** null: no key; a person, or the administrator. */
  apiKeyId: string | null
  /** null: not in the console, or there with an API key. */
  person: Person | null
  /** What it sees: both modes on the admin socket, and on a server for development, which has no live side. */
  reach: Reach
  /** Of a session of the console: whether it still holds; for what goes on after it was authenticated. */
  isAlive?: () => Promise<boolean>
  /** For the log: name and last four characters of the key, or the name of the person. */
  label: string
}

/** On the admin socket. */
const ADMINISTRATOR = 'cli'

const ADMINISTRATION = {
  apiKeyId: null,
  person: null,
  mode: 'live' as const,
  scopes: ['admin'],
  domains: [],
  reach: EVERYTHING,
  allowedIps: [],
  expiresAt: null,
}

/** Asks the public routes. */
export const ANONYMOUS: Principal = {
  apiKeyId: null,
  person: null,
  mode: 'live',
  scopes: [],
  domains: [],
  reach: { isTest: false, domains: [] },
  allowedIps: [],
  expiresAt: null,
  label: 'anonymous',
}

/**
 * Whoever may open the admin socket may do everything (commands/README.md "The command line"); the name is for the log
 * only.
 */
export function administrator(name: string | undefined): Principal {
  const label = name === undefined || name === '' ? 'administrator' : name
  return { ...ADMINISTRATION, label }
}

/**
 * In the console: whatever the role allows, of everything. `testMode`, here and below: a server for development, where
 * all mail is test mail, and test keys see everything.
 */
export function principalOfPerson(person: Person, testMode: boolean): Principal {
  return { ...ADMINISTRATION, mode: testMode ? 'test' : 'live', person, label: person.name }
}

export function principalOfKey(record: ApiKeyRecord, testMode: boolean): Principal {
  const { id: apiKeyId, mode, scopes, domains, allowedIps, expiresAt, name, last4 } = record
  const reach = { isTest: testMode ? null : mode === 'test', domains }
  return { apiKeyId, person: null, mode, scopes, domains, reach, allowedIps, expiresAt, label: `${name} …${last4}` }
}

/** Whoever could open the admin socket: neither a key nor somebody in the console. */
export function isOnAdminSocket({ apiKeyId, person }: Principal): boolean {
  return apiKeyId === null && person === null
}

/** As the audit of an IP names who asked. */
export function auditName({ apiKeyId, person }: Principal): string {
  return apiKeyId ?? person?.name ?? ADMINISTRATOR
}

/** A key that is limited to some sending domains does not learn about others. */
export function mayUseDomain({ domains }: Principal, domain: string): boolean {
  return domains.length === 0 || domains.includes(domain)
}

/** IPs, the queue and the configuration serve all sending domains. */
export function reachesServer({ reach }: Principal): boolean {
  return reach.isTest !== true && reach.domains.length === 0
}
