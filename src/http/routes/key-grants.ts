/**
 * A key grants only what it has itself (http/README.md "Keys and scopes"): its mode, its sending domains, the addresses
 * it may be used from. An empty list means "all". Scopes need no look: only `admin` makes keys, and has them all.
 */
import { ServiceError } from '../../base/errors.ts'
import { isInNetwork } from '../../base/ip-address.ts'
import type { ApiKeyRecord } from '../../senders/api-key.ts'
import { readDomainName } from '../../senders/domain-name.ts'
import type { Principal } from '../exchange/principal.ts'

type Grants = Pick<ApiKeyRecord, 'mode' | 'domains' | 'allowedIps'>

/** Throws ServiceError `forbidden` when the key could do what its maker cannot. */
export function refuseWidening(asked: Grants, maker: Principal): void {
  const problems = wideningProblems(asked, maker)
  if (problems.length > 0) throw new ServiceError('forbidden', problems.join('; '))
}

export function isWithinGrants(asked: Grants, maker: Principal): boolean {
  return wideningProblems(asked, maker).length === 0
}

function wideningProblems(asked: Grants, maker: Principal): string[] {
  const problems: string[] = []
  if (maker.mode === 'test' && asked.mode === 'live') problems.push('mode: a test key makes test keys only')
  const hasDomain = (text: string): boolean => {
    const reading = readDomainName(text)
    return reading.ok && maker.domains.includes(reading.name)
  }
  if (isWider(asked.domains, maker.domains, hasDomain)) problems.push('domains: more than the domains of this key')
  const hasNetwork = (network: string): boolean => isWithin(network, maker.allowedIps)
  if (isWider(asked.allowedIps, maker.allowedIps, hasNetwork)) {
    problems.push('allowed_ips: more than the addresses of this key')
  }
  return problems
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
