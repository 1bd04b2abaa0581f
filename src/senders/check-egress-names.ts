/**
 * Do the names of our own IPs say what receivers expect? PTR and HELO of each, and the SPF record that sending domains
 * include (operations.md 7: ptr, fcrdns, names).
 *
 * A question without an answer is a finding of its own, as nobody can say then. Never throws for what the DNS holds.
 */
import { canonicalIp, ipFamily } from '../base/ip-address.ts'
import { lookUpReverseName } from '../egress/ip-facts.ts'
import type { Resolver } from '../network/resolver.ts'
import { evaluateSpf } from './check-spf.ts'

export interface EgressName {
  address: string
  hostname: string
}

export interface EgressNameOptions {
  resolver: Resolver
  /** Name of the SPF record that sending domains include (`domains.targets.spf`). */
  spfName: string
  /** Of this server. */
  hostname: string
  /** Unix milliseconds. */
  now: number
}

/** What is wrong, a clause each; empty: nothing. */
export async function checkEgressNames(ip: EgressName, options: EgressNameOptions): Promise<string[]> {
  const found = await Promise.all([checkReverseName(ip, options), checkHelo(ip, options), checkSpf(ip, options)])
  return found.filter((problem) => problem !== null)
}

async function checkReverseName(
  { address, hostname }: EgressName, { resolver, now }: EgressNameOptions,
): Promise<string | null> {
  const { status, value } = await lookUpReverseName({ address, hostname }, resolver, now)
  switch (status) {
    case 'ok':
      return null
    case 'missing':
      return `PTR: ${address} has no reverse name; ask who gave you the address to set it to ${hostname}`
    case 'mismatch':
      return value === hostname.toLowerCase()
        ? `PTR: ${address} has the name ${hostname}, which does not lead back to it`
        : `PTR: ${address} has the name ${value ?? ''}; it must be ${hostname}`
    case 'unknown':
      return `PTR: the DNS did not answer for ${address}`
  }
}

/** The EHLO name must lead to the address (RFC 5321 §4.1.4 lets receivers look). */
async function checkHelo({ address, hostname }: EgressName, { resolver }: EgressNameOptions): Promise<string | null> {
  const family = ipFamily(address) ?? 4
  const type = family === 6 ? 'AAAA' : 'A'
  const answer = await resolver.addresses(hostname, family)
  if (answer.kind === 'no-answer') return `HELO: the DNS did not answer for ${hostname}`
  const records = answer.kind === 'found' ? answer.records : []
  if (records.some((record) => canonicalIp(record) === canonicalIp(address))) return null
  const seen = records.length === 0 ? 'none' : records.join(', ')
  return `HELO: ${hostname} must have the ${type} record ${address}; it has ${seen}`
}

async function checkSpf(
  { address }: EgressName, { resolver, spfName, hostname }: EgressNameOptions,
): Promise<string | null> {
  const { result } = await evaluateSpf(address, spfName, resolver, hostname)
  if (result === 'pass') return null
  if (result === 'temperror') return `SPF: the DNS did not answer for ${spfName}`
  const term = `ip${ipFamily(address) ?? 4}:${address}`
  return `SPF: ${spfName} gives ${result} for ${address}; its record must hold ${term}`
}
