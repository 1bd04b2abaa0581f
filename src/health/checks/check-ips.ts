/**
 * Is every egress IP on this machine, do packets leave from it, and can mail leave (health/README.md "Checks":
 * ip-present, ip-source, port25)? Whether something on the way puts another address in its place is only seen from
 * outside: the mail hosts of large providers answer EHLO with the address that they see. Never throws.
 */
import { createSocket } from 'node:dgram'
import { networkInterfaces } from 'node:os'
import { SECOND } from '../../base/clock.ts'
import { canonicalIp, ipFamily, isLoopback } from '../../base/ip-address.ts'
import { canBind } from '../../network/local-addresses.ts'
import { checkOf, type HealthFinding } from './check.ts'
import { greet } from './greet.ts'
import type { CheckedIp, CheckWorld } from './world.ts'
import { recordsIn } from '../../senders/verification/finding.ts'

const PRESENT = checkOf('ip-present', 'An IP that is not on this machine is disabled and sends nothing.')
const SOURCE = checkOf('ip-source', 'Receivers judge the address that packets really come from.')
const CONNECT_MILLISECONDS = 10 * SECOND

export const checkIpPresent = PRESENT.anywhere(({ ips }) => Promise.all(ips.map(presenceOf)))

async function presenceOf({ address, source }: CheckedIp): Promise<HealthFinding> {
  const isHere = isOnInterface(source)
  const isBindable = (await canBind(source)) && (await canBindDatagrams(source))
  if (isHere && isBindable) return PRESENT.ok(address, `${source} is on this machine`)
  const seen = isHere ? `${source} cannot be bound` : `${source} is on no interface of this machine`
  return PRESENT.fail(address, seen, addAddress(source))
}

/** Also every address of the loopback network. */
export function isOnInterface(address: string): boolean {
  const known = Object.values(networkInterfaces()).flatMap((each) => each ?? [])
  return isLoopback(address) || known.some((each) => canonicalIp(each.address) === canonicalIp(address))
}

function addAddress(source: string): string {
  const prefix = `${source}/${ipFamily(source) === 6 ? 128 : 32}`
  // The first one that leads out.
  const outer = Object.entries(networkInterfaces()).find(([, each]) => each?.some(({ internal }) => !internal))
  const card = outer?.[0] ?? 'eth0'
  return (
    `ip addr add ${prefix} dev ${card}; to keep it, in /etc/netplan/*.yaml under ethernets.${card}: ` +
    `addresses: [ "${prefix}" ], then: netplan apply. Behind NAT name the inner address as source in pools.yaml`
  )
}

function canBindDatagrams(address: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createSocket(ipFamily(address) === 6 ? 'udp6' : 'udp4')
    socket.once('error', () => {
      socket.close()
      resolve(false)
    })
    socket.bind(0, address, () => socket.close(() => resolve(true)))
  })
}

export const checkIpSource = SOURCE.anywhere(async (world) => {
  const hosts = await mailHosts(world)
  return Promise.all(world.ips.map((ip) => sourceOf(ip, hosts, world)))
})

async function sourceOf(ip: CheckedIp, hosts: readonly ProviderHost[], world: CheckWorld): Promise<HealthFinding> {
  const { address, source, hostname } = ip
  const [host] = hostsFor(ip, hosts)
  if (host === undefined) return SOURCE.skip(address, NO_HOST)
  const { port } = world.configuration.server.delivery
  const asked = { address: host.address, port, source, hello: hostname, timeoutMilliseconds: CONNECT_MILLISECONDS }
  const greeting = await greet(asked)
  if (greeting.kind === 'failed') return SOURCE.skip(address, `no connection to ${host.name}: see port25`)
  const seen = addressIn(greeting.answer ?? '')
  if (seen === undefined) return SOURCE.skip(address, `${host.name} does not say which address it sees`)
  if (seen === canonicalIp(address)) return SOURCE.ok(address, `${host.name} sees it`)
  const rule = `remove the rule that puts ${seen} in its place (nft list ruleset, or iptables -t nat -S)`
  const fix = `${rule}, or name the address of this machine that leaves as ${address} as its source in pools.yaml`
  return SOURCE.fail(address, `${host.name} sees ${seen}`, fix)
}

/** As in `250 mx.example.net at your service, [203.0.113.10]`. */
function addressIn(line: string): string | undefined {
  return canonicalIp(/\[(?:IPv6:)?([0-9a-f.:]+)\]/i.exec(line)?.[1] ?? '')
}

const PORT25 = checkOf('port25', 'Mail from this address cannot leave.')
/** Their mail hosts are asked for by name, so that a change of theirs is followed. */
const ASKED_PROVIDERS = ['gmail.com', 'outlook.com', 'yahoo.com'] as const
const NO_HOST = 'no mail host of the three providers has an address of this family'

/** One host that greets is enough: then nothing blocks the port. */
export const checkPort25 = PORT25.anywhere(async (world) => {
  const hosts = await mailHosts(world)
  return Promise.all(world.ips.map((ip) => reachFrom(ip, hosts, world)))
})

interface ProviderHost {
  /** null: not known. */
  name: string | null
  addresses: Record<4 | 6, string | null>
  /** Why it is not known, when the DNS was silent. */
  silence: string | null
}

function mailHosts(world: CheckWorld): Promise<ProviderHost[]> {
  return Promise.all(ASKED_PROVIDERS.map((domain) => mailHostOf(domain, world)))
}

/** Those with an address of the family of the IP. */
function hostsFor(ip: CheckedIp, hosts: readonly ProviderHost[]): { name: string; address: string }[] {
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
