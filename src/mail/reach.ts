/**
 * What somebody may see: an API key, a webhook endpoint, a follower of events (http/README.md "What a key reaches").
 * The same rule for messages, events, endpoints and suppressions. Pure.
 */
export interface Reach {
  /** true: what test keys made; false: the live side; null: both. */
  isTest: boolean | null
  /** Sending domains; empty: all of them, and the server itself. */
  domains: readonly string[]
}

export const EVERYTHING: Reach = { isTest: null, domains: [] }

/** Whom a message or an event belongs to. */
export interface Owner {
  isTest: boolean
  /** The domain that signs and that of `from`; empty: the server itself. */
  domains: readonly string[]
}

export function reaches({ isTest, domains }: Reach, owner: Owner): boolean {
  if (isTest !== null && isTest !== owner.isTest) return false
  return domains.length === 0 || owner.domains.some((domain) => domains.includes(domain))
}

/** True when `outer` reaches whatever `inner` does. */
export function includesReach(outer: Reach, inner: Reach): boolean {
  if (outer.isTest !== null && outer.isTest !== inner.isTest) return false
  if (outer.domains.length === 0) return true
  return inner.domains.length > 0 && inner.domains.every((domain) => outer.domains.includes(domain))
}

/** Of a message that is signed by `domain`. */
export function ownerOf({ isTest, domain, from }: { isTest: boolean; domain: string; from: string }): Owner {
  return { isTest, domains: [domain, from.slice(from.lastIndexOf('@') + 1).toLowerCase()] }
}
