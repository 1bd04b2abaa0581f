/**
 * Who runs the mail servers of a recipient domain: the provider whose limits hold, the `isp` customers see, and the
 * route, the unit of connections and rates (egress/README.md "Providers"). Pure; never throws.
 */
import { hash } from 'node:crypto'
import { ipFamily } from '../../base/ip-address.ts'
import type { ProviderLimits, ProviderSettings } from '../../config/settings/provider-settings.ts'
import { organizationalDomain } from '../../mail/organizational-domain.ts'

export interface MailboxProvider {
  /** Id of a block of providers.yaml, or null for an operator without one. */
  provider: string | null
  isp: string
  limits: ProviderLimits
  /** The provider's id, or the name of the site: equal for domains that share one set of hosts. */
  route: string
}

/** `mxNames`: the whole MX set, best first; the domain itself when it has none. */
export function identifyProvider(
  providers: ProviderSettings,
  recipientDomain: string,
  mxNames: readonly string[],
): MailboxProvider {
  const domain = recipientDomain.toLowerCase()
  const hosts = mxNames.map((name) => name.toLowerCase())
  const [provider, block] =
    Object.entries(providers.providers).find(
      ([, { domains, mx_suffixes }]) => domains.includes(domain) || runsAll(mx_suffixes, hosts),
    ) ?? []
  if (provider === undefined || block === undefined) {
    const route = siteRoute('site', hosts)
    return { provider: null, isp: operatorOf(domain, hosts), limits: providers.default, route }
  }
  const route = block.scope === 'provider' ? provider : siteRoute(provider, hosts)
  return { provider, isp: block.isp, limits: block, route }
}

function runsAll(suffixes: readonly string[], hosts: readonly string[]): boolean {
  const isBelow = (host: string): boolean => suffixes.some((each) => host === each || host.endsWith(`.${each}`))
  return hosts.length > 0 && hosts.every(isBelow)
}

/** The registrable domain of the most preferred host that has a name; else of the recipient domain. */
function operatorOf(domain: string, hosts: readonly string[]): string {
  return organizationalDomain(hosts.find((host) => ipFamily(host) === undefined) ?? domain)
}

/** 80 bits: enough for billions of sites without two that meet. */
const HASH_CHARACTERS = 20

/** The hyphen keeps a site apart from every provider id (a-z0-9_). */
function siteRoute(operator: string, hosts: readonly string[]): string {
  return `${operator}-${hash('sha256', siteName(hosts), 'hex').slice(0, HASH_CHARACTERS)}`
}

/** The sorted MX set with digits at the same place folded: mx1 and mx2.example.net are `mx[12].example.net`. */
export function siteName(hosts: readonly string[]): string {
  const folded = new Map<string, Set<string>[]>()
  for (const host of hosts) {
    // Every single digit.
    const digits = host.match(/\d/g) ?? []
    const shape = host.replace(/\d/g, '#')
    const places = folded.get(shape) ?? digits.map(() => new Set<string>())
    digits.forEach((digit, place) => places[place]?.add(digit))
    folded.set(shape, places)
  }
  return [...folded]
    .map(([shape, places]) => unfold(shape, places))
    .toSorted()
    .join(',')
}

function unfold(shape: string, places: readonly ReadonlySet<string>[]): string {
  let place = 0
  return shape.replace(/#/g, () => {
    const digits = [...(places[place++] ?? [])].toSorted().join('')
    return digits.length === 1 ? digits : `[${digits}]`
  })
}
