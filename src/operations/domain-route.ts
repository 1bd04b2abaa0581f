/** Where the mail of a domain goes, in words for an operator: its hosts, and the TLS that each one demands. */
import { ServiceError, unreachable } from '../base/errors.ts'
import type { HostTls } from '../delivery/protocol/host-tls.ts'
import type { FindRoute } from '../delivery/route/route-message.ts'
import { dnsProblem } from '../delivery/settle/judge-dns.ts'
import type { DomainRoute } from '../http/exchange/operator-features.ts'
import { readDomainName } from '../senders/domain-name.ts'

/** `text` as the operator wrote it. ServiceError `invalid_request` for what is no domain. */
export async function domainRoute(text: string, findRoute: FindRoute): Promise<DomainRoute> {
  const reading = readDomainName(text)
  if (!reading.ok) throw new ServiceError('invalid_request', `domain: "${text}" ${reading.problem}`)
  const domain = reading.name
  const route = await findRoute(domain)
  if (route.kind !== 'hosts') return { domain, problem: dnsProblem(route), provider: null, hosts: [] }
  const hosts = route.hosts.map(({ name, addresses, tls }) => ({
    name,
    addresses,
    tls: { policy: tls.policy.type, demand: tls.kind, text: demandText(tls) },
  }))
  return { domain, problem: null, provider: route.provider, hosts }
}

function demandText(tls: HostTls): string {
  switch (tls.kind) {
    case 'plain':
      return `no TLS: ${tls.reason}`
    case 'opportunistic':
      return 'TLS where the host announces it'
    case 'required':
      return `TLS with any certificate, asked for by ${tls.by}`
    case 'verified':
      return `TLS with a certificate of a known authority for ${tls.names.join(' or ')}`
    case 'dane':
      return 'TLS with a certificate that a TLSA record names'
    case 'skip':
      return `not tried: ${tls.reason}`
    default:
      return unreachable(tls)
  }
}
