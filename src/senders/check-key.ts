/**
 * What an API key may be made with: the rules about its name, scopes, domains and networks (http/README.md "Keys and
 * scopes").
 */
import { ServiceError } from '../base/errors.ts'
import { isCidr } from '../base/ip-address.ts'
import { readDomainName } from './domain-name.ts'

/** What each scope grants is in the table of http/README.md "Keys and scopes"; `admin` grants everything. */
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

const MOST_NAME_CHARACTERS = 100
// Every control character.
const CONTROL = /\p{Cc}/u

/** Names in their canonical form, nothing twice. Throws ServiceError `invalid_request` with every problem. */
export function checkKey(request: CreateKeyRequest, now: number): CreateKeyRequest {
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
