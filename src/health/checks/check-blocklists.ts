/**
 * Is an IP on a blocklist, and do the lists answer us at all (health/README.md "Checks": blocklist)?
 *
 * Never throws for what the DNS holds.
 */
import { readListing, reversed } from '../../egress/ips/ip-facts.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { verdicts, type HealthFinding } from './finding.ts'
import type { CheckedIp, CheckWorld, HealthCheck } from './world.ts'

const LISTS = verdicts('blocklist', 'Providers that use the list refuse mail from the address.')
const MOST_REASON_CHARACTERS = 200

/** Where an address is taken off; for a list that is not here, its own site says so. */
const REMOVAL: Readonly<Record<string, string>> = {
  'zen.spamhaus.org': 'https://check.spamhaus.org/',
  'bl.spamcop.net': 'https://www.spamcop.net/bl.shtml',
  'b.barracudacentral.org': 'https://www.barracudacentral.org/rbl/removal-request',
}

export const checkBlocklists: HealthCheck = {
  id: 'blocklist',
  place: 'anywhere',
  async run(world) {
    const { blocklists } = world.configuration.server.health
    if (blocklists.length === 0) return [LISTS.skip(null, 'health.blocklists is empty')]
    const found = await Promise.all(world.ips.map((ip) => ofAllLists(ip, blocklists, world)))
    return found.flat()
  },
}

async function ofAllLists(ip: CheckedIp, zones: readonly string[], world: CheckWorld): Promise<HealthFinding[]> {
  const found = await Promise.all(zones.map((zone) => listing(ip, zone, world)))
  const clean = found.filter((each) => each.finding.result === 'ok')
  const troubled = found.filter((each) => each.finding.result !== 'ok').map(({ finding }) => finding)
  if (clean.length === 0) return troubled
  const names = clean.map(({ zone }) => zone).join(', ')
  return [...troubled, LISTS.ok(ip.address, `is not on ${names}`)]
}

async function listing(
  { address }: CheckedIp,
  zone: string,
  { blocklistResolver: resolver }: CheckWorld,
): Promise<{ zone: string; finding: HealthFinding }> {
  const name = `${reversed(address)}.${zone}`
  const answer = readListing(await resolver.addresses(name, 4))
  switch (answer.kind) {
    case 'clean':
      return { zone, finding: LISTS.ok(address, `is not on ${zone}`) }
    case 'listed': {
      const reason = recordsIn(await resolver.txt(name))[0]?.slice(0, MOST_REASON_CHARACTERS)
      const why = reason === undefined ? '' : `: ${reason}`
      const place = REMOVAL[zone] ?? `the site of ${zone}`
      return {
        zone,
        finding: LISTS.fail(
          address,
          `is listed by ${zone} (${answer.entries.join(', ')})${why}`,
          `mend what led to it, then ask for removal: ${place}`,
        ),
      }
    }
    case 'refused': {
      const seen = `${zone} does not answer this resolver (${answer.entry}): nobody knows whether it is listed`
      return {
        zone,
        finding: LISTS.warn(
          address,
          seen,
          'set health.blocklist_servers to a resolver of your own, e.g. unbound here: lists refuse public ones',
        ),
      }
    }
    case 'unknown':
      return {
        zone,
        finding: LISTS.warn(
          address,
          `${zone} gave no answer (${answer.reason})`,
          'set health.blocklist_servers to a resolver of your own, or remove the list from health.blocklists',
        ),
      }
  }
}
