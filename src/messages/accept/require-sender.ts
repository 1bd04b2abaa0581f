/**
 * May this caller send from this name now, and which domain signs for it (http/README.md "Order of checks", step 12)? A
 * key that is limited to some domains learns nothing of others. Throws ServiceError `forbidden`, `domain_not_verified`.
 */
import { ServiceError } from '../../base/errors.ts'
import type { Domains } from '../../senders/domains.ts'
import type { DomainRecord } from '../../store/records/sender-records.ts'
import type { Caller } from './send-request.ts'

/** What acceptance asks of the domain that signs. */
export type SenderDomain = Pick<DomainRecord, 'name' | 'ipPool' | 'tracking'>

export interface SenderOptions {
  domains: Pick<Domains, 'requireVerified'>
  /** A domain that every test key may send from, without verification; null: there is none. */
  testSendingDomain: string | null
}

export async function requireSender(
  name: string,
  caller: Pick<Caller, 'domains' | 'mode'>,
  options: SenderOptions,
): Promise<SenderDomain> {
  const isAllowed = (domain: string): boolean => caller.domains.length === 0 || caller.domains.includes(domain)
  const mayBeAllowed = isAllowed(name) || caller.domains.some((domain) => name.endsWith(`.${domain}`))
  const sender = mayBeAllowed ? await findSender(name, caller, options) : undefined
  if (sender !== undefined && (isAllowed(name) || isAllowed(sender.name))) return sender
  throw new ServiceError('forbidden', `this key may not send as ${name}, only as ${caller.domains.join(', ')}`)
}

/** Where the ready domain is a domain of this server as well, that one's settings hold. */
async function findSender(
  name: string,
  { mode }: Pick<Caller, 'mode'>,
  { domains, testSendingDomain }: SenderOptions,
): Promise<SenderDomain> {
  try {
    return await domains.requireVerified(name)
  } catch (thrown) {
    const isReady = mode === 'test' && name === testSendingDomain
    const isUnverified = thrown instanceof ServiceError && thrown.code === 'domain_not_verified'
    if (isReady && isUnverified) return { name, ipPool: null, tracking: { opens: true, clicks: true } }
    throw thrown
  }
}
