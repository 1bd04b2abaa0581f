/**
 * What the DNS says of us (health/README.md "Checks": ptr, fcrdns, names, blocklist): a reverse name of each IP that
 * leads back to the address, and the EHLO name; the names that sending domains use of this server; and whether an IP is
 * on a blocklist. Never throws for what the DNS holds. RFC 1912 §2.1, RFC 5321 §4.1.4.
 */
import { canonicalIp, ipFamily } from '../../base/ip-address.ts'
import { reverseName, readListing, reversed } from '../../egress/ips/ip-facts.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { checkOf, DNS_FIX, type HealthFinding } from './check.ts'
import type { CheckedIp, CheckWorld } from './world.ts'
import { evaluateSpf } from '../../senders/verification/check-spf.ts'
import { recordsOfTargets } from '../../senders/records/required-records.ts'

const PTR = checkOf('ptr', 'Large providers refuse mail from an address without a reverse name.')
const FORWARD = checkOf('fcrdns', 'Receivers check that the reverse name, the EHLO name and the address agree.')

export const checkPtr = PTR.anywhere(({ ips, resolver }) =>
  Promise.all(
    ips.map(async ({ address, hostname }) => {
      const answer = await resolver.ptr(reverseName(address))
      if (answer.kind === 'no-answer') return PTR.silent(address, answer.reason)
      const [first] = recordsIn(answer)
      if (first !== undefined) return PTR.ok(address, `the reverse name is ${first}`)
      return PTR.fail(address, 'there is no reverse name (PTR record)', setPtr(address, hostname))
    }),
  ),
)

export const checkForwardNames = FORWARD.anywhere(async ({ ips, resolver }) =>
  (await Promise.all(ips.map((ip) => forwardOf(ip, resolver)))).flat(),
)

async function forwardOf({ address, hostname }: CheckedIp, resolver: CheckWorld['resolver']): Promise<HealthFinding[]> {
  const family = ipFamily(address) ?? 4
  const [reverse, forward] = await Promise.all([
    resolver.ptr(reverseName(address)),
    resolver.addresses(hostname, family),
  ])
  for (const answer of [reverse, forward]) {
    if (answer.kind === 'no-answer') return [FORWARD.silent(address, answer.reason)]
  }
  const wrong: HealthFinding[] = []
  const addresses = recordsIn(forward)
  if (!addresses.some((found) => canonicalIp(found) === canonicalIp(address))) {
    const type = family === 6 ? 'AAAA' : 'A'
    const seen = addresses.length === 0 ? `has no ${type} record` : `leads to ${addresses.join(', ')}`
    const fix = `add the record: ${hostname}. ${type} ${address}`
    wrong.push(FORWARD.fail(address, `the EHLO name ${hostname} ${seen}`, fix))
  }
  const names = recordsIn(reverse)
  if (names.length > 0 && !names.includes(hostname.toLowerCase())) {
    const seen = `the reverse name is ${names.join(', ')}, and the EHLO name is ${hostname}`
    wrong.push(FORWARD.fail(address, seen, setPtr(address, hostname)))
  }
  if (wrong.length > 0) return wrong
  // The check `ptr` says it.
  if (names.length === 0) return [FORWARD.skip(address, 'there is no reverse name to compare with')]
  return [FORWARD.ok(address, `${hostname} leads here and back`)]
}

function setPtr(address: string, hostname: string): string {
  const record = `${reverseName(address)}. PTR ${hostname}.`
  return `at the hoster of the address, set the reverse DNS of ${address} to ${hostname} (record: ${record})`
}

const NAMES = checkOf('names', 'Sending domains point to these names: SPF and tracked links end there.')

/** Also whether SPF passes for every egress IP. The return path is looked at by `inbound`. */
export const checkOwnNames = NAMES.anywhere(async (world) => {
  const { hostname, domains } = world.configuration.server
  const { targets } = domains
  const hosts = [...new Set([hostname, targets.tracking])]
  const found = await Promise.all([...hosts.map((name) => addressesOf(name, world)), spfOf(targets.spf, world)])
  return found.flat()
})

async function addressesOf(name: string, { resolver, ips }: CheckWorld): Promise<HealthFinding[]> {
  const answers = await Promise.all([resolver.addresses(name, 4), resolver.addresses(name, 6)])
  const addresses = answers.flatMap(recordsIn)
  if (addresses.length > 0) return [NAMES.ok(name, `leads to ${addresses.join(', ')}`)]
  const silent = answers.find(({ kind }) => kind === 'no-answer')
  if (silent?.kind === 'no-answer') return [NAMES.silent(name, silent.reason)]
  const example = ips.find(({ address }) => ipFamily(address) === 4)?.address ?? '<address of this server>'
  return [NAMES.fail(name, 'the name has no address', `add the record: ${name}. A ${example}`)]
}

async function spfOf(name: string, { configuration, ips, resolver }: CheckWorld): Promise<HealthFinding[]> {
  const { hostname, domains } = configuration.server
  const facts = { hostname, targets: domains.targets, dmarcReportAddress: domains.dmarc_report_address }
  const addresses = Object.values(configuration.pools.pools).flatMap((pool) => pool.ips.map((ip) => ip.address))
  const wanted = recordsOfTargets(facts, addresses, name).find(({ type }) => type === 'TXT')?.value ?? ''
  return Promise.all(
    ips.map(async ({ address }) => {
      const { result } = await evaluateSpf(address, name, resolver, hostname)
      if (result === 'pass') return NAMES.ok(address, `SPF of ${name} passes`)
      if (result === 'temperror') return NAMES.warn(address, `SPF of ${name}: the DNS did not answer`, DNS_FIX)
      return NAMES.fail(address, `SPF of ${name} gives ${result}`, `set the record: ${name}. TXT "${wanted}"`)
    }),
  )
}

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
