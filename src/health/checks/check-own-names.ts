/**
 * The names that sending domains and receivers use of this server: host name, tracking, SPF; and whether SPF passes for
 * every egress IP (health/README.md "Checks": names). The return path is looked at by `inbound`. Never throws for what
 * the DNS holds.
 */
import { ipFamily } from '../../base/ip-address.ts'
import { evaluateSpf } from '../../senders/verification/check-spf.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { recordsOfTargets } from '../../senders/records/required-records.ts'
import { checkOf, DNS_FIX } from './check.ts'
import type { HealthFinding } from './finding.ts'
import type { CheckedIp, CheckWorld } from './world.ts'

const NAMES = checkOf('names', 'Sending domains point to these names: SPF and tracked links end there.')

export const checkOwnNames = NAMES.anywhere(async (world) => {
  const {
    hostname,
    domains: { targets },
  } = world.configuration.server
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

async function spfOf(name: string, world: CheckWorld): Promise<HealthFinding[]> {
  const {
    configuration: { server, pools },
  } = world
  const facts = {
    hostname: server.hostname,
    targets: server.domains.targets,
    dmarcReportAddress: server.domains.dmarc_report_address,
  }
  const addresses = Object.values(pools.pools).flatMap(({ ips }) => ips.map(({ address }) => address))
  const wanted = recordsOfTargets(facts, addresses, name).find(({ type }) => type === 'TXT')?.value ?? ''
  return Promise.all(world.ips.map((ip) => spfFor(ip, { name, wanted, world })))
}

async function spfFor(
  { address }: CheckedIp,
  { name, wanted, world }: { name: string; wanted: string; world: CheckWorld },
): Promise<HealthFinding> {
  const { result } = await evaluateSpf(address, name, world.resolver, world.configuration.server.hostname)
  if (result === 'pass') return NAMES.ok(address, `SPF of ${name} passes`)
  if (result === 'temperror') return NAMES.warn(address, `SPF of ${name}: the DNS did not answer`, DNS_FIX)
  return NAMES.fail(address, `SPF of ${name} gives ${result}`, `set the record: ${name}. TXT "${wanted}"`)
}
