/**
 * What differs between two configurations, as lines for an administrator and as data (config/README.md "Reload").
 *
 *   + ip 203.0.113.12 in bulk      - pool legacy      ~ ip 203.0.113.11 weight 1 -> 5
 *   ~ providers.google.connections 5 -> 3             ! listen.submission changed: takes effect after a restart
 *
 * Of sternpost.yaml only some keys are followed by a running server; `withLiveKeys` gives the configuration that is in
 * force after a reload: the new one, with the old values of all the others. Secrets are never shown. Pure.
 */
import { durationText, rateText, type Rate } from './settings/field-types.ts'
import type { FileName } from './source/finding.ts'
import { deepFreeze, type Configuration } from './load-configuration.ts'
import type { EgressIpSettings, PoolSettings } from './settings/pool-settings.ts'
import type { ServerSettings } from './settings/server-settings.ts'

export interface ConfigurationChange {
  kind: 'added' | 'removed' | 'changed' | 'restart'
  /** `ip 203.0.113.12`, `pool legacy`, or a dotted path. */
  what: string
  /** Values as text; null: nothing to show. */
  from: string | null
  to: string | null
  pool: string | null
}

/** Sections of sternpost.yaml, and keys of them, that are read at each use. */
const LIVE_KEYS: { [Section in keyof ServerSettings]?: readonly string[] | 'all' } = {
  backup: 'all',
  delivery: [
    'retry',
    'retry_jitter',
    'streams',
    'ready_window',
    'greylist_retry',
    'uncertain_retry',
    'ipv6',
    'tls',
    'mta_sts',
    'remember_plain',
    'tls_reports',
  ],
  cluster: 'all',
  health: 'all',
  http: ['acme_webroot'],
  log: 'all',
  retention: 'all',
  tls: ['certificates'],
  webhooks: ['dead_letter_retention'],
}

const liveKeys = new Map(Object.entries(LIVE_KEYS))

/** Whether a running server takes a change of this key over; else it takes effect at the next start. */
export function followsReload(file: FileName, path: string): boolean {
  const [section = '', key] = path.split('.')
  if (file !== 'sternpost') return section !== 'machines'
  const live = liveKeys.get(section)
  return live !== undefined && (live === 'all' || key === undefined || live.includes(key))
}

export function configurationDiff(before: Configuration, after: Configuration): ConfigurationChange[] {
  return [
    ...poolChanges(before.pools, after.pools),
    ...valueChanges('warmup', before.warmup, after.warmup),
    ...valueChanges('providers', before.providers, after.providers).map((found) =>
      // Who fetches links is read once.
      found.what === 'providers.machines' ? afterRestart(found) : found,
    ),
    ...valueChanges('bounces', before.bounces, after.bounces),
    ...serverChanges(before.server, after.server),
  ]
}

/** `next`, but with the keys of `before` that a running server does not follow. */
export function withLiveKeys(before: Configuration, next: Configuration): Configuration {
  const live = [...liveKeys.keys()].map((section) => {
    const values = Object.entries(sectionOf(next.server, section))
    const followed = values.filter(([key]) => followsReload('sternpost', `${section}.${key}`))
    return [section, { ...sectionOf(before.server, section), ...Object.fromEntries(followed) }]
  })
  return deepFreeze({ ...next, server: { ...before.server, ...Object.fromEntries(live) } })
}

function sectionOf(server: ServerSettings, section: string): object {
  const value: unknown = new Map(Object.entries(server)).get(section)
  return typeof value === 'object' && value !== null ? value : {}
}

export function changeLine({ kind, what, from, to, pool }: ConfigurationChange): string {
  const values = from === null && to === null ? '' : ` ${from ?? 'none'} -> ${to ?? 'none'}`
  switch (kind) {
    case 'added':
      return `+ ${what}${pool === null ? '' : ` in ${pool}`}${to === null ? '' : ` ${to}`}`
    case 'removed':
      return `- ${what}${pool === null ? '' : ` of ${pool}`}`
    case 'changed':
      return `~ ${what}${values}${noteOf(what)}`
    case 'restart':
      return `! ${what} changed: takes effect after a restart`
  }
}

/** `warmed` is read when an IP is new, and never again. */
function noteOf(what: string): string {
  const address = /^ip (\S+) warmed$/.exec(what)?.[1]
  return address === undefined ? '' : ` (no effect on a known IP; use: sternpost ip warmup complete|restart ${address})`
}

function poolChanges(before: PoolSettings, after: PoolSettings): ConfigurationChange[] {
  const { pools: poolsBefore, ...restBefore } = before
  const { pools: poolsAfter, ...restAfter } = after
  const changes = valueChanges('pools', restBefore, restAfter)
  for (const name of Object.keys({ ...poolsBefore, ...poolsAfter })) {
    const { ips: _ipsBefore, ...old } = poolsBefore[name] ?? NONE
    const { ips: _ipsAfter, ...now } = poolsAfter[name] ?? NONE
    if (poolsAfter[name] === undefined) changes.push(change('removed', `pool ${name}`))
    else if (poolsBefore[name] === undefined) changes.push(change('added', `pool ${name}`))
    else changes.push(...valueChanges(`pool ${name}`, old, now))
  }
  return [...changes, ...ipChanges(ipsOf(before), ipsOf(after))]
}

const NONE = { ips: [] }

type PlacedIp = EgressIpSettings & { pool: string }

function ipsOf({ pools }: PoolSettings): Map<string, PlacedIp> {
  const all = Object.entries(pools).flatMap(([pool, { ips }]) => ips.map((ip) => ({ ...ip, pool })))
  return new Map(all.map((ip) => [ip.address, ip]))
}

function ipChanges(before: Map<string, PlacedIp>, after: Map<string, PlacedIp>): ConfigurationChange[] {
  const removed = [...before.values()].filter(({ address }) => !after.has(address))
  const kept = [...after.values()].flatMap((ip) => {
    const old = before.get(ip.address)
    const what = `ip ${ip.address}`
    return old === undefined ? [{ ...change('added', what), pool: ip.pool }] : valueChanges(what, old, ip)
  })
  return [...removed.map(({ address, pool }) => ({ ...change('removed', `ip ${address}`), pool })), ...kept]
}

function serverChanges(before: ServerSettings, after: ServerSettings): ConfigurationChange[] {
  return valueChanges('', before, after).map((found): ConfigurationChange => {
    const isFollowed = found.what.includes('.') && followsReload('sternpost', found.what)
    return isFollowed ? found : afterRestart(found)
  })
}

/**
 * One change for each value that differs, under its dotted path: things with an id by that, stages by their number; any
 * other list, a rate or a secret is one value.
 */
function valueChanges(path: string, before: unknown, after: unknown): ConfigurationChange[] {
  if (JSON.stringify(before) === JSON.stringify(after)) return []
  const [byIdBefore, byIdAfter] = [byId(before), byId(after)]
  if (byIdBefore !== undefined && byIdAfter !== undefined) {
    const changes = valueChanges(path, byIdBefore, byIdAfter)
    return changes.length > 0 ? changes : [{ ...change('changed', path), from: 'one order', to: 'another' }]
  }
  if (path.endsWith('.stages') && Array.isArray(before) && Array.isArray(after) && before.length === after.length) {
    return before.flatMap((value, index) => valueChanges(`${path}[${index}]`, value, after[index]))
  }
  if (!isMap(before) || !isMap(after)) {
    // Any key of `retention` but its budget.
    const isDuration = DURATIONS.includes(path.split(/[ .]/).at(-1) ?? '') || /^retention\.(?!budget)/.test(path)
    return [{ ...change('changed', path), from: shownValue(before, isDuration), to: shownValue(after, isDuration) }]
  }
  const [old, now] = [new Map(Object.entries(before)), new Map(Object.entries(after))]
  return [...new Set([...old.keys(), ...now.keys()])].flatMap((key) => {
    const separator = path.includes(' ') ? ' ' : '.'
    const below = path === '' ? key : `${path}${separator}${key}`
    if (!now.has(key)) return [change('removed', below)]
    return old.has(key) ? valueChanges(below, old.get(key), now.get(key)) : [change('added', below)]
  })
}

function afterRestart(found: ConfigurationChange): ConfigurationChange {
  return { ...found, kind: 'restart', from: null, to: null }
}

function change(kind: ConfigurationChange['kind'], what: string): ConfigurationChange {
  return { kind, what, from: null, to: null, pool: null }
}

function isMap(value: unknown): value is object {
  const isOne = typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array)
  return isOne && !isRate(value)
}

function isRate(value: unknown): value is Rate {
  return typeof value === 'object' && value !== null && 'count' in value && 'per_milliseconds' in value
}

/** Undefined: it is no list of things with an id. */
function byId(list: unknown): Record<string, unknown> | undefined {
  if (!Array.isArray(list)) return undefined
  const known = list.flatMap((item: unknown): [string, unknown][] =>
    isMap(item) && 'id' in item && typeof item.id === 'string' ? [[item.id, item]] : [],
  )
  return known.length < list.length ? undefined : Object.fromEntries(known)
}

/** Keys that a running server follows, whose numbers are milliseconds; so are those of `retention`. */
const DURATIONS = [
  'max_defer',
  'for',
  'max',
  'idle_rewarm_after',
  'idle',
  'lifetime',
  'retry',
  'greylist_retry',
  'uncertain_retry',
  'remember_plain',
  'interval',
  'backup_max_age',
  'dead_letter_retention',
]
/** Longer lists say nothing on a line. */
const LONGEST_SHOWN = 60

function shownValue(value: unknown, isDuration: boolean): string {
  if (value instanceof Uint8Array) return '(secret)'
  if (value === null || value === undefined) return 'none'
  if (isRate(value)) return rateText(value)
  if (typeof value === 'number' && isDuration) return durationText(value)
  if (Array.isArray(value) && isDuration) {
    return shownValue(value.map((item: unknown) => shownValue(item, true)).join(', '), false)
  }
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  return text.length <= LONGEST_SHOWN ? text : `${text.slice(0, LONGEST_SHOWN)}…`
}
