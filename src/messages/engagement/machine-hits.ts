/**
 * Which opens and clicks are those of machines, by what a request and its neighbours tell (messages/README.md "Hits").
 * Pure.
 */
import { SECOND } from '../../base/clock.ts'
import { canonicalIp, isCidr, isInNetwork } from '../../base/ip-address.ts'
import { compilePattern } from '../../config/checks/pattern-safety.ts'

/** Who made a request. */
export interface Client {
  address: string
  userAgent: string
}

export interface Click {
  linkNumber: number
  at: number
  /** `networkOf` the client. */
  network: string
}

/** Clicks of one network on one link, none more than `SAME_RUN_WITHIN` behind the one before; `at` is the first's. */
export interface ClickRun extends Click {
  /** When the last one came. */
  until: number
}

const IMAGE_PROXY = /GoogleImageProxy|YahooMailProxy/
const PRIVACY_PROXY = 'Mozilla/5.0'
const DIFFERENT_LINKS_WITHIN = 3 * SECOND
export const TWO_NETWORKS_WITHIN = 10 * SECOND
/** Whatever comes between two clicks of a run is near enough to one of them to be in a burst with it. */
export const SAME_RUN_WITHIN = DIFFERENT_LINKS_WITHIN
/** What one site commonly has: 24 bits of IPv4, 48 of IPv6. */
const SITE_PARTS = 3

/** `machines`: regular expressions on user agents; an entry that is a network is compared with the address. */
export function createMachineList(machines: readonly string[]) {
  const networks = machines.filter(isCidr)
  const patterns = machines.filter((entry) => !isCidr(entry)).map(compilePattern)
  const isListed = ({ address, userAgent }: Client): boolean =>
    patterns.some((pattern) => pattern.test(userAgent)) || networks.some((network) => isInNetwork(address, network))
  return {
    isMachineOpen: (client: Client) =>
      !IMAGE_PROXY.test(client.userAgent) && (client.userAgent === PRIVACY_PROXY || isListed(client)),
    isMachineClick: isListed,
  }
}

/** Addresses of one site are one network. */
export function networkOf(address: string): string {
  const canonical = canonicalIp(address) ?? ''
  if (!canonical.includes(':')) return canonical.split('.').slice(0, SITE_PARTS).join('.')
  const [head = '', tail] = canonical.split('::')
  const parts = head.split(':')
  // A `::` stands for zeros, and begins before or behind the part that counts.
  const filled = tail === undefined ? parts : [...parts.filter((part) => part !== ''), '0', '0', '0']
  return filled.slice(0, SITE_PARTS).join(':')
}

/** `others`: the clicks on links of the same message around it, which may hold this one. */
export function isOfBurst(click: Click, others: readonly ClickRun[]): boolean {
  return others.some((other) => {
    const apart = Math.max(other.at - click.at, click.at - other.until, 0)
    if (other.linkNumber !== click.linkNumber) return apart <= DIFFERENT_LINKS_WITHIN
    return other.network !== click.network && apart <= TWO_NETWORKS_WITHIN
  })
}
