/**
 * Checks of `pools.yaml` against itself and the other files: every IP once, every name known, no circle of overflow, no
 * private address by accident.
 */
import { networkInterfaces } from 'node:os'
import { canonicalIp, isInNetwork, isLoopback } from '../../base/ip-address.ts'
import { didYouMean } from '../source/explain-mistake.ts'
import { errorAt, warningAt, type FileName, type Finding, type Trees } from '../source/finding.ts'
import { isVariable } from '../source/environment.ts'
import { nearestName } from '../settings/nearest-name.ts'
import type { PoolSettings } from '../settings/pool-settings.ts'
import { entriesAt, itemsAt, nearestPosition, positionText, textAt } from '../source/at-path.ts'
import type { SourceNode, SourcePath } from '../source/source-tree.ts'
import type { ProviderSettings } from '../settings/provider-settings.ts'
import type { ServerSettings } from '../settings/server-settings.ts'
import type { WarmupSettings } from '../settings/warmup-settings.ts'

/** Addresses that no other server on the internet can answer to. */
const NOT_PUBLIC = [
  '0.0.0.0/8',
  '127.0.0.0/8',
  '::/127', // this host (RFC 1122 §3.2.1.3, RFC 4291 §2.5)
  '10.0.0.0/8',
  '172.16.0.0/12',
  '192.168.0.0/16',
  'fc00::/7', // private (RFC 1918 §3, RFC 4193 §3.1)
  '100.64.0.0/10', // carriers' own (RFC 6598 §7)
  '169.254.0.0/16',
  'fe80::/10', // link-local (RFC 3927 §2.1, RFC 4291 §2.5.6)
  '224.0.0.0/4',
  'ff00::/8', // multicast (RFC 5771 §3, RFC 4291 §2.7)
]

export function poolChecks(settings: JudgedSettings, trees: Trees, { isOffline }: { isOffline: boolean }): Finding[] {
  const root = trees.pools
  if (root === undefined) return []
  const { pools, server } = settings
  return [
    ...repeatedIps(root),
    ...unknownNames(root, trees),
    ...overflowCircles(root),
    ...(server?.delivery.allow_private_addresses === false ? privateIps(root) : []),
    ...(pools === undefined
      ? []
      : [...weakPools(pools), ...sharedHostNames(pools), ...sharedSources(pools), ...looseLimits(pools, settings)]),
    ...(pools === undefined || isOffline ? [] : absentIps(pools, root)),
  ]
}

interface IpPlace {
  address: string
  pool: string
  path: SourcePath
}

function ipsOf(root: SourceNode): IpPlace[] {
  return entriesAt(root, ['pools']).flatMap(([pool]) =>
    itemsAt(root, ['pools', pool, 'ips']).flatMap((_, index): IpPlace[] => {
      const path = ['pools', pool, 'ips', index, 'address']
      const address = canonicalIp(textAt(root, path) ?? '')
      return address === undefined ? [] : [{ address, pool, path }]
    }),
  )
}

function repeatedIps(root: SourceNode): Finding[] {
  const first = new Map<string, IpPlace>()
  return ipsOf(root).flatMap((place) => {
    const earlier = first.get(place.address)
    first.set(place.address, earlier ?? place)
    if (earlier === undefined) return []
    const where = positionText(nearestPosition(root, earlier.path))
    return [errorAt('pools', place.path, `${place.address} is already in pool "${earlier.pool}" (${where})`)]
  })
}

function unknownNames(root: SourceNode, trees: Trees): Finding[] {
  const pools = namesAt(root, ['pools'])
  const curves = namesAt(trees.warmup, ['curves'])
  const providers = namesAt(trees.providers, ['providers'])
  const unknown = (path: SourcePath, kind: string, known: string[] | undefined): Finding[] =>
    unknownName({ file: 'pools', root, path, kind, known })
  const findings = unknown(['default_pool'], 'pool', pools)
  for (const pool of pools ?? []) {
    findings.push(...unknown(['pools', pool, 'overflow_pool'], 'pool', pools))
    for (const index of itemsAt(root, ['pools', pool, 'ips']).keys()) {
      findings.push(...unknown(['pools', pool, 'ips', index, 'curve'], 'curve', curves))
    }
    if (providers === undefined) continue
    for (const [provider] of entriesAt(root, ['pools', pool, 'limits'])) {
      const path = ['pools', pool, 'limits', provider]
      const found = unknownIn(provider, { file: 'pools', path, kind: 'provider', known: [...providers, 'default'] })
      findings.push(...found.map((finding) => ({ ...finding, isAboutKey: true })))
    }
  }
  return findings
}

interface NameUse {
  file: FileName
  path: SourcePath
  kind: string
  /** undefined: the file that holds the names could not be read, so nothing can be said. */
  known: string[] | undefined
}

export function unknownName({ root, ...use }: NameUse & { root: SourceNode }): Finding[] {
  const name = textAt(root, use.path)
  return name === undefined ? [] : unknownIn(name, use)
}

function unknownIn(name: string, { file, path, kind, known }: NameUse): Finding[] {
  if (known === undefined || known.includes(name)) return []
  const suggestion = nearestName(name, known)
  return [errorAt(file, path, `no ${kind} "${name}"${didYouMean(suggestion)}`, suggestion)]
}

export function namesAt(root: SourceNode | undefined, path: SourcePath): string[] | undefined {
  return root === undefined ? undefined : entriesAt(root, path).map(([name]) => name)
}

function overflowCircles(root: SourceNode): Finding[] {
  const findings: Finding[] = []
  const told = new Set<string>()
  for (const [pool] of entriesAt(root, ['pools'])) {
    const chain = [pool]
    let next = textAt(root, ['pools', pool, 'overflow_pool'])
    while (next !== undefined && !chain.includes(next)) {
      chain.push(next)
      next = textAt(root, ['pools', next, 'overflow_pool'])
    }
    if (next !== pool || told.has(pool)) continue
    for (const member of chain) told.add(member)
    const text = `overflow goes in a circle: ${[...chain, pool].join(' -> ')}`
    findings.push(errorAt('pools', ['pools', pool, 'overflow_pool'], text))
  }
  return findings
}

function privateIps(root: SourceNode): Finding[] {
  const fix = 'behind NAT write the public one here and this one as source'
  return ipsOf(root)
    .filter(({ address }) => NOT_PUBLIC.some((network) => isInNetwork(address, network)))
    .map(({ address, path }) => errorAt('pools', path, `${address} is a loopback or private address; ${fix}`))
}

function weakPools({ pools, default_pool }: PoolSettings): Finding[] {
  return Object.entries(pools).flatMap(([name, { ips, require_warmup }]) => {
    if (ips.length === 0) {
      return [errorAt('pools', ['pools', name], 'this pool has no IPs: nothing could be sent from it')]
    }
    const isCold = require_warmup && ips.every(({ warmed }) => !warmed)
    if (name !== default_pool || !isCold) return []
    const text = 'the default pool has only cold IPs: it sends what their warmup allows'
    return [warningAt('pools', ['pools', name], text)]
  })
}

function sharedHostNames({ pools }: PoolSettings): Finding[] {
  const first = new Map<string, string>()
  return Object.entries(pools).flatMap(([name, { ips }]) =>
    ips.flatMap(({ address, hostname }, index) => {
      const earlier = first.get(hostname)
      first.set(hostname, earlier ?? address)
      if (earlier === undefined) return []
      const text = `${hostname} is also the name of ${earlier}; receivers expect one name per address`
      return [warningAt('pools', ['pools', name, 'ips', index, 'hostname'], text)]
    }),
  )
}

/** What leaves from one local address has one address outside, whichever IP it was meant for. */
function sharedSources({ pools }: PoolSettings): Finding[] {
  const first = new Map<string, string>()
  return Object.entries(pools).flatMap(([name, { ips }]) =>
    ips.flatMap(({ address, source }, index) => {
      const earlier = first.get(source)
      first.set(source, earlier ?? address)
      if (earlier === undefined || earlier === address) return []
      const text = `mail of ${address} would leave as that of ${earlier}: both have the source ${source}`
      return [warningAt('pools', ['pools', name, 'ips', index, 'address'], text)]
    }),
  )
}

/** A pool can only tighten what `providers.yaml` allows: the smaller number counts. */
function looseLimits({ pools }: PoolSettings, { providers }: JudgedSettings): Finding[] {
  if (providers === undefined) return []
  return Object.entries(pools).flatMap(([name, { limits }]) =>
    Object.entries(limits).flatMap(([id, own]) => {
      const theirs = id === 'default' ? providers.default : providers.providers[id]
      if (theirs === undefined) return []
      const loose = (['connections', 'messages_per_connection'] as const).filter((key) => (own[key] ?? 0) > theirs[key])
      return loose.map((key) => {
        const text = `${own[key]} has no effect: providers.yaml allows ${theirs[key]}`
        return warningAt('pools', ['pools', name, 'limits', id, key], text)
      })
    }),
  )
}

/** A warning: an address may come later. Not so in the environment of a process, which is of this machine. */
function absentIps({ pools }: PoolSettings, root: SourceNode): Finding[] {
  const present = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  // Every address of 127.0.0.0/8 can be bound, though the interface shows one.
  const isPresent = (source: string): boolean =>
    isLoopback(source) || present.some(({ address }) => canonicalIp(address) === source)
  return Object.entries(pools).flatMap(([name, { ips }]) =>
    ips.flatMap(({ source }, index) => {
      if (isPresent(source)) return []
      const path = ['pools', name, 'ips', index, 'address']
      const text = `${source} is not on this machine: the IP sends nothing`
      if (!isVariable(nearestPosition(root, path))) return [warningAt('pools', path, text)]
      return [errorAt('pools', path, `${text}. A container needs the network of the host`)]
    }),
  )
}

/** What could be judged; undefined where the file has mistakes. */
export interface JudgedSettings {
  server: ServerSettings | undefined
  pools: PoolSettings | undefined
  warmup: WarmupSettings | undefined
  providers: ProviderSettings | undefined
}
