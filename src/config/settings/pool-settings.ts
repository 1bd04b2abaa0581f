/**
 * `pools.yaml`: pools and the egress IPs inside them (config/README.md "pools.yaml", egress/README.md "Pool of a
 * message").
 */
import { z } from 'zod'
import { HOUR } from '../../base/clock.ts'
import { IPV6_CHOICES } from './delivery-settings.ts'
import { boolean, choice, count, duration, integer, rate, text } from './field-types.ts'
import { field, named, readName, section } from './reading.ts'
import { hostName, ipAddress } from './network-field-types.ts'

/** What happens when today's warmup allowance of a pool is used up. */
const OVERFLOW_CHOICES = [
  'spill', // warmed IPs of the overflow pool, or of this pool, take the rest
  'defer', // the rest waits, at most max_defer
  'reject', // the request is refused with ip_not_warmed
] as const

const STREAMS = ['transactional', 'bulk'] as const
const HIGHEST_WEIGHT = 1_000

// Pool names appear in URLs, metrics and file names.
const readPoolName = readName('pool name', /^[a-z0-9-]{1,40}$/, 'only a-z, 0-9 and hyphens, at most 40')
export const readCurveName = readName('curve name', /^[a-z0-9_-]{1,40}$/, 'only a-z, 0-9, hyphens and underscores')
export const readProviderId = readName('provider id', /^[a-z0-9_]{1,40}$/, 'only a-z, 0-9 and underscores')

const limits = section({
  connections: count.optional(),
  messages_per_connection: count.optional(),
  rate: rate.optional(),
  connection_rate: rate.optional(),
})

const egressIp = section({
  address: ipAddress,
  source: ipAddress.nullable().default(null),
  hostname: hostName,
  weight: integer({ min: 0, max: HIGHEST_WEIGHT }).default(100),
  enabled: boolean.default(true),
  warmed: boolean.default(false),
  curve: field(readCurveName).nullable().default(null),
})

const pool = section({
  description: text.default(''),
  overflow: choice(OVERFLOW_CHOICES).default('spill'),
  overflow_pool: field(readPoolName).nullable().default(null),
  max_defer: duration().default(24 * HOUR),
  require_warmup: boolean.default(true),
  connections_max: count.nullable().default(null),
  rate: rate.nullable().default(null),
  limits: named(readProviderId, limits).default({}),
  ipv6: choice(IPV6_CHOICES).nullable().default(null),
  ips: z.array(egressIp).default([]),
})

export const poolsSchema = section({
  version: choice([1]),
  default_pool: field(readPoolName),
  warmup_streams: z.array(choice(STREAMS)).default(['transactional', 'bulk']),
  affinity: choice(['message', 'recipient_domain']).default('message'),
  pools: named(readPoolName, pool),
})

type ParsedPoolSettings = z.infer<typeof poolsSchema>
type ParsedPool = ParsedPoolSettings['pools'][string]

/** `source` is the address to bind; null in the file stands for `address` itself. */
export interface EgressIpSettings extends Omit<ParsedPool['ips'][number], 'source'> {
  source: string
}

export interface Pool extends Omit<ParsedPool, 'ips'> {
  ips: EgressIpSettings[]
}

export interface PoolSettings extends Omit<ParsedPoolSettings, 'pools'> {
  /** Without a prototype, so that no request can name `constructor` as a pool. */
  pools: Record<string, Pool>
}

export function resolvePoolSettings(parsed: ParsedPoolSettings): PoolSettings {
  const pools: Record<string, Pool> = Object.create(null)
  for (const [name, pool] of Object.entries(parsed.pools)) {
    pools[name] = { ...pool, ips: pool.ips.map((ip) => ({ ...ip, source: ip.source ?? ip.address })) }
  }
  return { ...parsed, pools }
}
