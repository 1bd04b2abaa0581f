/**
 * GET /domains for a key that is limited to some sending domains: pages over those alone, so that neither the entries
 * nor the cursor tell of others.
 *
 * Newest first, stable while domains are added or removed: the cursor is the place of an entry, not its number. Throws
 * ServiceError `invalid_request` for a cursor that is none of ours.
 */
import { ServiceError } from '../../base/errors.ts'
import type { DomainView } from '../../senders/domain-view.ts'
import type { DomainList, Domains, ListDomainsQuery } from '../../senders/domains.ts'

type Place = Pick<DomainView, 'created_at' | 'domain'>

/** Seconds of the creation, and the name. */
const CURSOR = /^(\d{1,12})\.(\S+)$/

export async function listOwnDomains(
  names: readonly string[],
  { status, limit, after }: ListDomainsQuery,
  find: Domains['find'],
): Promise<DomainList> {
  const start = after === null ? null : readCursor(after)
  const found = await Promise.all([...new Set(names)].map((name) => find(name)))
  const matching = found
    .filter((domain) => domain !== null)
    .filter((domain) => hasStatus(domain, status))
    .filter((domain) => start === null || compare(start, domain) < 0)
    .toSorted(compare)
  const domains = matching.slice(0, limit)
  const last = domains.at(-1)
  const next = last !== undefined && matching.length > limit ? `${last.created_at}.${last.domain}` : null
  return { domains, next }
}

function readCursor(text: string): Place {
  const [, createdAt, domain] = CURSOR.exec(text) ?? []
  if (createdAt === undefined || domain === undefined) {
    throw new ServiceError('invalid_request', 'after: is not a cursor of this list')
  }
  return { created_at: Number(createdAt), domain }
}

/** `verified` means "may be used": the field, not the state (http/README.md "Domains"). */
function hasStatus(domain: DomainView, status: ListDomainsQuery['status']): boolean {
  if (status === 'all') return true
  return status === 'verified' ? domain.verified : domain.status === status
}

function compare(left: Place, right: Place): number {
  if (left.created_at !== right.created_at) return right.created_at - left.created_at
  if (left.domain === right.domain) return 0
  return left.domain < right.domain ? -1 : 1
}
