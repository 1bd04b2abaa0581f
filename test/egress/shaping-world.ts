/** A shaping with the shipped rules, a clock moved by hand and a store in memory; and what it said to others. */
import { createLogger } from '../../src/base/logger.ts'
import { loadRules } from '../../src/config/read-parts.ts'
import type { ProviderSettings } from '../../src/config/settings/provider-settings.ts'
import type { PoolSettings } from '../../src/config/settings/pool-settings.ts'
import { createShaping } from '../../src/egress/shaping/create-shaping.ts'
import type { ShapingSettings } from '../../src/egress/shaping/records.ts'
import type { ConnectionNote, Gate, Lane, ShapedPath, Shaping, TryNote } from '../../src/egress/shaping/shaping.ts'
import type { BounceCategory } from '../../src/mail/reply/bounce-category.ts'
import { readSmtpReply, type SmtpReply, type SmtpStage } from '../../src/mail/reply/smtp-reply.ts'
import type { PathStateRecord } from '../../src/store/records/warmup-records.ts'
import { SHIPPED } from '../config/folders.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'

export const LANE: Lane = { domain: 'acme.test', stream: 'bulk' }
export const OTHER_LANE: Lane = { domain: 'other.test', stream: 'bulk' }
export const SHIPPED_PROVIDERS: ProviderSettings = loadRules(SHIPPED, SHIPPED).providers

type Pool = PoolSettings['pools'][string]

export function poolOf(addresses: readonly string[], changes: Partial<Pool> = {}): Pool {
  const ips = addresses.map((address) => ({
    address,
    source: address,
    hostname: 'mta.example',
    weight: 100,
    enabled: true,
    warmed: true,
    curve: null,
  }))
  return {
    description: '',
    overflow: 'spill',
    overflow_pool: null,
    max_defer: 86_400_000,
    require_warmup: true,
    connections_max: null,
    rate: null,
    limits: {},
    ipv6: null,
    ips,
    ...changes,
  }
}

export function poolSettings(pools: Record<string, Pool>): PoolSettings {
  return { version: 1, default_pool: 'default', warmup_streams: [], affinity: 'message', pools }
}

/** A path of a provider of the shipped file, or of nobody's. */
export function pathTo(provider: string | null, changes: Partial<ShapedPath> = {}): ShapedPath {
  const { ip = '192.0.2.1', route = provider ?? 'site-1' } = changes
  const block = provider === null ? undefined : SHIPPED_PROVIDERS.providers[provider]
  return {
    key: `${ip} ${route}`,
    ip,
    route,
    provider,
    isp: block?.isp ?? 'example.net',
    limits: block ?? SHIPPED_PROVIDERS.default,
    newIpLimits: null,
    ...changes,
  }
}

export function reply(text: string): SmtpReply {
  const read = readSmtpReply(text)
  if (read === undefined) throw new Error(`no reply: ${text}`)
  return read
}

export function refused(text: string, category: BounceCategory = 'temporary', stage: SmtpStage = 'dot'): TryNote {
  return { kind: 'refused', reply: reply(text), stage, category }
}

export function notConnected(changes: Partial<ConnectionNote & { kind: 'failed' }> = {}): ConnectionNote {
  return {
    kind: 'failed',
    stage: 'connect',
    host: 'mx.test',
    reply: null,
    reason: 'connection refused',
    wasRequiredTls: false,
    ...changes,
  }
}

export interface World {
  clock: ManualClock
  shaping: Shaping
  settings: ShapingSettings
  /** Rows as the store has them. */
  rows: Map<string, PathStateRecord>
  /** How many rows the store was given at once. */
  saved: number[]
  /** What was signalled: `block 192.0.2.1 rule: …`. */
  said: string[]
  /** Times at which something opened. */
  opened: number[]
  /** Saves that the store still refuses. */
  refuses: number
  /** The same store and clock, another process. */
  restart(): Promise<World>
}

export async function shapingWorld(settings: Partial<ShapingSettings> = {}, former?: World): Promise<World> {
  const clock = former?.clock ?? manualClock()
  const rows = former?.rows ?? new Map<string, PathStateRecord>()
  const saved: number[] = []
  const said: string[] = []
  const opened: number[] = []
  const whole: ShapingSettings = {
    providers: SHIPPED_PROVIDERS,
    pools: poolSettings({ default: poolOf(['192.0.2.1', '192.0.2.2', '192.0.2.3']) }),
    ...settings,
  }
  const shaping = createShaping({
    clock,
    logger: createLogger({ level: 'silent' }),
    settings: () => whole,
    store: {
      loadPathStates: async () => [...rows.values()],
      savePathStates: async (states) => {
        if (world.refuses-- > 0) throw new Error('database or disk is full')
        saved.push(states.length)
        for (const state of states) {
          if (state.state === '') rows.delete(`${state.ip} ${state.route}`)
          else rows.set(`${state.ip} ${state.route}`, state)
        }
      },
    },
    signals: {
      onBlock: ({ ip, isp, isRule }) => void said.push(`block ${ip} ${isp} ${isRule ? 'rule' : 'reply'}`),
      onIpSuspension: (ip, until) => void said.push(`ip ${ip} ${(until - clock.now()) / 60_000} min`),
      onLaneSuspension: ({ pool, route, domain, until }) =>
        void said.push(`lane ${pool} ${route} ${domain} ${(until - clock.now()) / 60_000} min`),
      onIpUnreachable: (ip) => void said.push(`unreachable ${ip}`),
    },
  })
  shaping.onOpen(() => opened.push(clock.now()))
  const world: World = {
    clock,
    shaping,
    settings: whole,
    rows,
    saved,
    said,
    opened,
    refuses: 0,
    restart: () => shapingWorld(settings, world),
  }
  await shaping.start()
  return world
}

/** Minutes until the path opens by itself; 0: open. */
export function closedFor({ shaping, clock }: World, path: ShapedPath, lane: Lane | null = null): number {
  const gate = shaping.gate(path, lane)
  return gate.kind === 'open' ? 0 : ((gate.until ?? Infinity) - clock.now()) / 60_000
}

/** What an open gate lets through. */
export function openGate(gate: Gate): { connections: number; messages: number; underWay: number; ofLane: number } {
  if (gate.kind === 'closed') throw new Error(gate.text)
  const { connections, messagesPerConnection, mostUnderWay, mostOfLane } = gate
  return { connections, messages: messagesPerConnection, underWay: mostUnderWay, ofLane: mostOfLane }
}
