/**
 * Can mail leave: outbound TCP 25 from each IP to mail hosts of three large providers (health/README.md "Checks":
 * port25)?
 *
 * One host that greets is enough: then nothing blocks the port. Never throws.
 */
import { SECOND } from '../../base/clock.ts'
import { ipFamily } from '../../base/ip-address.ts'
import { recordsIn } from '../../senders/verification/finding.ts'
import { checkOf } from './check.ts'
import type { HealthFinding } from './finding.ts'
import { greet } from './greet.ts'
import type { CheckedIp, CheckWorld } from './world.ts'

const PORT25 = checkOf('port25', 'Mail from this address cannot leave.')
/** Their mail hosts are asked for by name, so that a change of theirs is followed. */
const ASKED_PROVIDERS = ['gmail.com', 'outlook.com', 'yahoo.com'] as const
const CONNECT_MILLISECONDS = 10 * SECOND
export const NO_HOST = 'no mail host of the three providers has an address of this family'

export const checkPort25 = PORT25.anywhere(async (world) => {
  const hosts = await mailHosts(world)
  return Promise.all(world.ips.map((ip) => reachFrom(ip, hosts, world)))
})

export interface ProviderHost {
  /** null: not known. */
  name: string | null
  addresses: Record<4 | 6, string | null>
  /** Why it is not known, when the DNS was silent. */
  silence: string | null
}

export function mailHosts(world: CheckWorld): Promise<ProviderHost[]> {
  return Promise.all(ASKED_PROVIDERS.map((domain) => mailHostOf(domain, world)))
}

/** Those with an address of the family of the IP. */
export function hostsFor(ip: CheckedIp, hosts: readonly ProviderHost[]): { name: string; address: string }[] {
  const family = ipFamily(ip.address) ?? 4
  return hosts.flatMap(({ name, addresses }) => {
    const address = addresses[family]
    return name === null || address === null ? [] : [{ name, address }]
  })
}

async function mailHostOf(domain: string, { resolver }: CheckWorld): Promise<ProviderHost> {
  const answer = await resolver.mx(domain)
  const silence = answer.kind === 'no-answer' ? answer.reason : null
  const [best] = recordsIn(answer).toSorted((left, right) => left.priority - right.priority)
  if (best === undefined) return { name: null, addresses: { 4: null, 6: null }, silence }
  const [ipv4, ipv6] = await Promise.all([resolver.addresses(best.exchange, 4), resolver.addresses(best.exchange, 6)])
  return { name: best.exchange, addresses: { 4: recordsIn(ipv4)[0] ?? null, 6: recordsIn(ipv6)[0] ?? null }, silence }
}

async function reachFrom(ip: CheckedIp, hosts: readonly ProviderHost[], world: CheckWorld): Promise<HealthFinding> {
  const { port } = world.configuration.server.delivery
  const reachable = hostsFor(ip, hosts)
  if (reachable.length === 0) {
    const silent = hosts.find(({ silence }) => silence !== null)?.silence
    if (silent === undefined || silent === null) return PORT25.skip(ip.address, NO_HOST)
    return PORT25.silent(ip.address, silent)
  }
  const greetings = await Promise.all(
    reachable.map(async ({ name, address }) => {
      const asked = { address, port, source: ip.source, timeoutMilliseconds: CONNECT_MILLISECONDS }
      return { name, greeting: await greet(asked) }
    }),
  )
  const greeted = greetings.find(({ greeting }) => greeting.kind === 'greeted')
  if (greeted?.greeting.kind === 'greeted') {
    return PORT25.ok(ip.address, `${greeted.name} answered: ${greeted.greeting.line}`)
  }
  const tried = greetings.map(({ name, greeting }) =>
    greeting.kind === 'failed' ? `${name}: ${greeting.reason}` : name,
  )
  const seen = `connect to ${tried.length} of ${tried.length} mail hosts failed (${tried.join('; ')})`
  const fix = 'ask the provider to open outbound TCP 25; text: sternpost doctor --ticket port25'
  return PORT25.fail(ip.address, seen, fix)
}
