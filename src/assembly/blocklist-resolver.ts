/**
 * Who is asked about blocklists: they refuse public resolvers, so they may have one of their own
 * (`health.blocklist_servers`, of the start).
 */
import { createDnsResolver } from '../network/dns-resolver.ts'
import type { Resolver } from '../network/resolver.ts'
import type { Foundation } from './foundation.ts'

export function blocklistResolver({ live, resolver, outside }: Foundation): Resolver {
  const { health, dns } = live.current().server
  if (health.blocklist_servers.length === 0 || outside !== undefined) return resolver
  return createDnsResolver({ servers: health.blocklist_servers, timeoutMilliseconds: dns.timeout, tries: dns.tries })
}
