/** Who asks: an API key, or the administrator on the admin socket. */
import { EVERYTHING, type Reach } from '../../mail/reach.ts'
import type { ApiKeyRecord } from '../../senders/api-key.ts'

export interface Principal extends Pick<ApiKeyRecord, 'mode' | 'scopes' | 'domains' | 'allowedIps'> {
  /** null: no key, the administrator. */
  apiKeyId: string | null
  /** What it sees: both modes on the admin socket, and on a server for development, which has no live side. */
  reach: Reach
  /** For the log: name and last four characters of the key, or the name of the person. */
  label: string
}

/** On the admin socket. */
const ADMINISTRATOR = 'cli'

/** Asks the public routes. */
export const ANONYMOUS: Principal = {
  apiKeyId: null,
  mode: 'live',
  scopes: [],
  domains: [],
  reach: { isTest: false, domains: [] },
  allowedIps: [],
  label: 'anonymous',
}

/**
 * Whoever may open the admin socket may do everything (commands/README.md "The command line"); the name is for the log
 * only.
 */
export function administrator(name: string | undefined): Principal {
  const label = name === undefined || name === '' ? 'administrator' : name
  return { apiKeyId: null, mode: 'live', scopes: ['admin'], domains: [], reach: EVERYTHING, allowedIps: [], label }
}

/** As the audit of an IP names who asked. */
export function auditName({ apiKeyId }: Principal): string {
  return apiKeyId ?? ADMINISTRATOR
}

/** A key that is limited to some sending domains does not learn about others. */
export function mayUseDomain({ domains }: Principal, domain: string): boolean {
  return domains.length === 0 || domains.includes(domain)
}

/** IPs, the queue and the configuration serve all sending domains. */
export function reachesServer({ reach }: Principal): boolean {
  return reach.isTest !== true && reach.domains.length === 0
}
