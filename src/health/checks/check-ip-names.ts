/**
 * Do the names of each IP say what receivers expect: a reverse name that leads back to the address, and the EHLO name
 * (health/README.md "Checks": ptr, fcrdns)? Never throws for what the DNS holds. RFC 1912 §2.1, RFC 5321 §4.1.4.
 */
import { canonicalIp, ipFamily } from '../../base/ip-address.ts'
import { reverseName } from '../../egress/ips/ip-facts.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { verdicts, type HealthFinding } from './finding.ts'
import type { CheckedIp, CheckWorld, HealthCheck } from './world.ts'

const PTR = verdicts('ptr', 'Large providers refuse mail from an address without a reverse name.')
const FORWARD = verdicts('fcrdns', 'Receivers check that the reverse name, the EHLO name and the address agree.')

export const checkPtr: HealthCheck = {
  id: 'ptr',
  place: 'anywhere',
  run: ({ ips, resolver }) => Promise.all(ips.map((ip) => ptrOf(ip, resolver))),
}

async function ptrOf({ address, hostname }: CheckedIp, resolver: CheckWorld['resolver']): Promise<HealthFinding> {
  const answer = await resolver.ptr(reverseName(address))
  if (answer.kind === 'no-answer') return PTR.warn(address, `the DNS did not answer (${answer.reason})`, DNS_FIX)
  const [first] = recordsIn(answer)
  if (first === undefined) {
    return PTR.fail(address, 'there is no reverse name (PTR record)', setPtr(address, hostname))
  }
  return PTR.ok(address, `the reverse name is ${first}`)
}

export const checkForwardNames: HealthCheck = {
  id: 'fcrdns',
  place: 'anywhere',
  run: async ({ ips, resolver }) => (await Promise.all(ips.map((ip) => forwardOf(ip, resolver)))).flat(),
}

async function forwardOf({ address, hostname }: CheckedIp, resolver: CheckWorld['resolver']): Promise<HealthFinding[]> {
  const family = ipFamily(address) ?? 4
  const type = family === 6 ? 'AAAA' : 'A'
  const [reverse, forward] = await Promise.all([
    resolver.ptr(reverseName(address)),
    resolver.addresses(hostname, family),
  ])
  for (const answer of [reverse, forward]) {
    if (answer.kind !== 'no-answer') continue
    return [FORWARD.warn(address, `the DNS did not answer (${answer.reason})`, DNS_FIX)]
  }
  const wrong: HealthFinding[] = []
  const addresses = recordsIn(forward)
  if (!addresses.some((found) => canonicalIp(found) === canonicalIp(address))) {
    const seen = addresses.length === 0 ? `has no ${type} record` : `leads to ${addresses.join(', ')}`
    wrong.push(
      FORWARD.fail(address, `the EHLO name ${hostname} ${seen}`, `add the record: ${hostname}. ${type} ${address}`),
    )
  }
  const names = recordsIn(reverse)
  if (names.length > 0 && !names.includes(hostname.toLowerCase())) {
    wrong.push(
      FORWARD.fail(
        address,
        `the reverse name is ${names.join(', ')}, and the EHLO name is ${hostname}`,
        setPtr(address, hostname),
      ),
    )
  }
  if (wrong.length > 0) return wrong
  // The check `ptr` says it.
  if (names.length === 0) return [FORWARD.skip(address, 'there is no reverse name to compare with')]
  return [FORWARD.ok(address, `${hostname} leads here and back`)]
}

function setPtr(address: string, hostname: string): string {
  return (
    `at the hoster of the address, set the reverse DNS of ${address} to ${hostname} ` +
    `(record: ${reverseName(address)}. PTR ${hostname}.)`
  )
}

export const DNS_FIX = 'check dns.servers in sternpost.yaml, or /etc/resolv.conf; try: dig +short NS .'
