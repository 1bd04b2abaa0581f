/**
 * Is an IP on a blocklist, and do the lists answer us at all (health/README.md "Checks": blocklist)?
 *
 * Never throws for what the DNS holds.
 */
import { readListing, reversed } from '../../egress/ips/ip-facts.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { checkOf } from './check.ts'
import type { HealthFinding } from './finding.ts'
import type { CheckedIp, CheckWorld } from './world.ts'

const LISTS = checkOf('blocklist', 'Providers that use the list refuse mail from the address.')
const MOST_REASON_CHARACTERS = 200

/** Where an address is taken off; for a list that is not here, its own site says so. */
const REMOVAL: Readonly<Record<string, string>> = {
  'zen.spamhaus.org': 'https://check.spamhaus.org/',
  'bl.spamcop.net': 'https://www.spamcop.net/bl.shtml',
  'b.barracudacentral.org': 'https://www.barracudacentral.org/rbl/removal-request',
}

export const checkBlocklists = LISTS.anywhere(async (world) => {
  const { blocklists } = world.configuration.server.health
  if (blocklists.length === 0) return [LISTS.skip(null, 'health.blocklists is empty')]
  const found = await Promise.all(world.ips.map((ip) => ofAllLists(ip, blocklists, world)))
  return found.flat()
})

async function ofAllLists(ip: CheckedIp, zones: readonly string[], world: CheckWorld): Promise<HealthFinding[]> {
  const found = await Promise.all(zones.map((zone) => trouble(ip, zone, world)))
  const clean = zones.filter((_zone, index) => found[index] === null)
  const troubles = found.filter((each) => each !== null)
  return clean.length === 0 ? troubles : [...troubles, LISTS.ok(ip.address, `is not on ${clean.join(', ')}`)]
}

/** null: it is not listed there. */
async function trouble(
  { address }: CheckedIp,
  zone: string,
  { blocklistResolver: resolver }: CheckWorld,
): Promise<HealthFinding | null> {
  const name = `${reversed(address)}.${zone}`
  const answer = readListing(await resolver.addresses(name, 4))
  const ownResolver = 'set health.blocklist_servers to a resolver of your own'
  switch (answer.kind) {
    case 'clean':
      return null
    case 'listed': {
      const reason = recordsIn(await resolver.txt(name))[0]?.slice(0, MOST_REASON_CHARACTERS)
      const seen = `is listed by ${zone} (${answer.entries.join(', ')})${reason === undefined ? '' : `: ${reason}`}`
      const place = REMOVAL[zone] ?? `the site of ${zone}`
      return LISTS.fail(address, seen, `mend what led to it, then ask for removal: ${place}`)
    }
    case 'refused': {
      const seen = `${zone} does not answer this resolver (${answer.entry}): nobody knows whether it is listed`
      return LISTS.warn(address, seen, `${ownResolver}, e.g. unbound here: lists refuse public ones`)
    }
    case 'unknown': {
      const fix = `${ownResolver}, or remove the list from health.blocklists`
      return LISTS.warn(address, `${zone} gave no answer (${answer.reason})`, fix)
    }
  }
}
