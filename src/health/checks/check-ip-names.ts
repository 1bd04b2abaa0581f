/**
 * Do the names of each IP say what receivers expect: a reverse name that leads back to the address, and the EHLO name
 * (health/README.md "Checks": ptr, fcrdns)? Never throws for what the DNS holds. RFC 1912 §2.1, RFC 5321 §4.1.4.
 */
import { canonicalIp, ipFamily } from '../../base/ip-address.ts'
import { reverseName } from '../../egress/ips/ip-facts.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { checkOf } from './check.ts'
import type { HealthFinding } from './finding.ts'
import type { CheckedIp, CheckWorld } from './world.ts'

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
