/**
 * POST /keys: the JSON it takes, and that a key grants only what it has itself (contract.md 3).
 */
import { z } from 'zod'
import { SECOND } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { isInNetwork } from '../../base/ip-address.ts'
import type { CreateKeyRequest } from '../../senders/api-key.ts'
import type { Principal } from '../principal.ts'
import { textList } from './optional.ts'

/** More than anybody needs in one key; keeps a hostile body cheap. */
const MOST_LIST_ENTRIES = 1_000

export const createKeySchema = z.object({
  name: z.string(),
  mode: z.enum(['live', 'test']),
  scopes: textList(MOST_LIST_ENTRIES),
  domains: textList(MOST_LIST_ENTRIES).nullish(),
  allowed_ips: textList(MOST_LIST_ENTRIES).nullish(),
  /** Unix seconds. */
  expires_at: z.int().nullish(),
})

export function toCreateKeyRequest(fields: z.infer<typeof createKeySchema>): CreateKeyRequest {
  const { name, mode, scopes, expires_at: expiresAt } = fields
  return {
    name, mode, scopes,
    domains: fields.domains ?? [],
    allowedIps: fields.allowed_ips ?? [],
    expiresAt: typeof expiresAt === 'number' ? expiresAt * SECOND : null,
  }
}

/** Throws ServiceError `forbidden` when the new key could do what its maker cannot. An empty list means "all". */
export function refuseWidening(request: CreateKeyRequest, maker: Principal): void {
  const problems: string[] = []
  if (maker.mode === 'test' && request.mode === 'live') problems.push('mode: a test key makes test keys only')
  const hasDomain = (name: string): boolean => maker.domains.includes(name.toLowerCase())
  if (isWider(request.domains, maker.domains, hasDomain)) problems.push('domains: more than the domains of this key')
  const hasNetwork = (network: string): boolean => isWithin(network, maker.allowedIps)
  if (isWider(request.allowedIps, maker.allowedIps, hasNetwork)) {
    problems.push('allowed_ips: more than the addresses of this key')
  }
  if (problems.length > 0) throw new ServiceError('forbidden', problems.join('; '))
}

function isWider(asked: readonly string[], own: readonly string[], has: (entry: string) => boolean): boolean {
  return own.length > 0 && (asked.length === 0 || !asked.every(has))
}

/** True when the network lies in one of `networks`: its address does, and its prefix is not shorter. */
function isWithin(network: string, networks: readonly string[]): boolean {
  const [address = ''] = network.split('/')
  return networks.some((outer) => isInNetwork(address, outer) && prefixLength(network) >= prefixLength(outer))
}

/** A single address counts as the longest prefix. */
function prefixLength(network: string): number {
  const length = network.split('/')[1]
  return length === undefined ? Number.POSITIVE_INFINITY : Number(length)
}
