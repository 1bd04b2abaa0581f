/**
 * All addresses of a host name from our own resolver. The names of this machine itself (RFC 6761 §6.3) lead to it
 * without a question, and are judged like any other; its other local names (/etc/hosts) are not known here. Rejects as
 * the system's lookup does: ENOTFOUND for a name that has no address, EAI_AGAIN when no server answered.
 */
import type { AddressLookup } from './guarded-request.ts'
import { normaliseDnsName } from './dns-resolver.ts'
import type { Resolver } from './resolver.ts'

const OWN_NAME = /^(?:.+\.)?localhost$/
const OWN_ADDRESSES = ['127.0.0.1', '::1']

export function createGuardedLookup(resolver: Resolver): AddressLookup {
  return async (hostname) => {
    if (OWN_NAME.test(normaliseDnsName(hostname))) return OWN_ADDRESSES
    const answers = await Promise.all([resolver.addresses(hostname, 4), resolver.addresses(hostname, 6)])
    const addresses = answers.flatMap((answer) => (answer.kind === 'found' ? answer.records : []))
    if (addresses.length > 0) return addresses
    const code = answers.some(({ kind }) => kind === 'no-answer') ? 'EAI_AGAIN' : 'ENOTFOUND'
    throw Object.assign(new Error(`${hostname} has no address`), { code })
  }
}
