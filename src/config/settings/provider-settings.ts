/**
 * `providers.yaml`: mailbox providers, each with every limit, its own or that of the default block, and the reply rules
 * in the order in which they are tried (config/README.md "providers.yaml", egress/README.md "Providers").
 */
import { z } from 'zod'
import { DAY, MINUTE, SECOND } from '../../base/clock.ts'
import { TLS_CHOICES } from './delivery-settings.ts'
import { boolean, choice, count, duration, integer, rate, readDuration, text } from './field-types.ts'
import { accepted, field, named, readName, refused, section, shown, type Reading } from './reading.ts'
import { hostName, hostNameSuffix } from './network-field-types.ts'
import { readProviderId } from './pool-settings.ts'

/** Stages of the dialogue as rules name them; `dot` is the final dot. */
export const REPLY_STAGES = ['connect', 'ehlo', 'mail', 'rcpt', 'data', 'dot'] as const
/** Stands for every provider in a rule. */
export const ANY_PROVIDER = 'any'

/** What makes two domains share one path. */
const SCOPES = [
  'host_set', // the same set of MX hosts
  'provider', // the same provider
] as const

/** What a rule does to the path whose reply matched. */
const ACTIONS = [
  'limit', // a lower rate, fewer connections, or fewer messages per connection
  'suspend', // nothing at all
  'suspend_lane', // nothing from this sending domain
] as const

export const readRuleId = readName('rule id', /^[a-z0-9-]{1,60}$/, 'only a-z, 0-9 and hyphens')
const readIsp = readName('isp name', /^[a-z0-9_-]{1,40}$/, 'only a-z, 0-9, hyphens and underscores')

/** Messages of one connection; more would help nobody: the bytes of a flight are bounded. */
const inFlight = integer({ min: 1, max: 64 })

const defaultBlock = section({
  connections: count.default(10),
  messages_per_connection: count.default(100),
  in_flight: inFlight.default(4),
  rate: rate.default({ count: 100, per_milliseconds: SECOND }),
  connection_rate: rate.default({ count: 100, per_milliseconds: MINUTE }),
  tls: choice(TLS_CHOICES).default('opportunistic'),
  idle: duration().default(15 * SECOND),
  failures: count.default(10),
  scope: choice(SCOPES).default('host_set'),
})

const providerBlock = section({
  isp: field(readIsp).optional(),
  mx_suffixes: z.array(hostNameSuffix).default([]),
  domains: z.array(hostName).default([]),
  connections: count.optional(),
  messages_per_connection: count.optional(),
  in_flight: inFlight.optional(),
  rate: rate.optional(),
  connection_rate: rate.optional(),
  tls: choice(TLS_CHOICES).optional(),
  idle: duration().optional(),
  failures: count.optional(),
  scope: choice(SCOPES).optional(),
})

const replyRule = section({
  id: field(readRuleId),
  provider: field(readProviderId).default(ANY_PROVIDER),
  stage: z.array(choice(REPLY_STAGES)).default([]),
  match: text,
  when: field(readThreshold).default({ count: 1, within_milliseconds: null }),
  do: choice(ACTIONS),
  rate: rate.nullable().default(null),
  connections: count.nullable().default(null),
  messages_per_connection: count.nullable().default(null),
  for: duration({ min: MINUTE, max: DAY }),
  block: boolean.default(false),
  also: boolean.default(false),
  example: text,
})

export const providersSchema = section({
  version: choice([1]),
  default: defaultBlock.prefault({}),
  providers: named(readProviderId, providerBlock).default({}),
  replies: z.array(replyRule).default([]),
  machines: z.array(text).default([]),
})

/** So many matches within a time; a count of 1 needs no time. */
export interface Threshold {
  count: number
  within_milliseconds: number | null
}

type ParsedProviderSettings = z.infer<typeof providersSchema>
export type ProviderLimits = ParsedProviderSettings['default']
export type ReplyRuleSettings = ParsedProviderSettings['replies'][number]

export interface Provider extends ProviderLimits {
  isp: string
  /** Without a dot in front; a host belongs to one at a label boundary. */
  mx_suffixes: string[]
  domains: string[]
}

export interface ProviderSettings extends Omit<ParsedProviderSettings, 'providers'> {
  /** In the order in which they are tried; without a prototype. */
  providers: Record<string, Provider>
}

export function resolveProviderSettings(parsed: ParsedProviderSettings): ProviderSettings {
  const providers: Record<string, Provider> = Object.create(null)
  for (const [id, { mx_suffixes, domains, isp, ...own }] of Object.entries(parsed.providers)) {
    providers[id] = Object.assign({ isp: isp ?? id, mx_suffixes, domains }, parsed.default, own)
  }
  return { ...parsed, providers, replies: inOrderOfTrial(parsed.replies) }
}

/** Rules of a provider are tried before those of any provider, each in the order of the file. */
export function inOrderOfTrial<Rule extends { provider: string }>(rules: Rule[]): Rule[] {
  const general = rules.filter((rule) => rule.provider === ANY_PROVIDER)
  return [...rules.filter((rule) => rule.provider !== ANY_PROVIDER), ...general]
}

function readThreshold(value: unknown): Reading<Threshold> {
  if (value === 1) return accepted({ count: 1, within_milliseconds: null })
  if (typeof value === 'number') return refused(`${value} needs a time; write for example ${value}/1h`, `${value}/1h`)
  // A count, a slash and a duration.
  const match = /^([1-9]\d{0,5})\/(.+)$/.exec(typeof value === 'string' ? value : '')
  const within = readDuration(match?.[2])
  if (match === null || !within.ok) return refused(`${shown(value)} is not a threshold; write for example 3/1h`)
  return accepted({ count: Number(match[1]), within_milliseconds: within.value })
}
