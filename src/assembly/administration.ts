/**
 * What administrators use, made of the parts of a running server: reload, queue, paths, pools, IPs, routes of domains.
 */
import type { Clock } from '../base/clock.ts'
import { ConfigurationError, errorText, ServiceError, unreachable } from '../base/errors.ts'
import { canonicalIp } from '../base/ip-address.ts'
import type { Logger } from '../base/logger.ts'
import { packageVersion } from '../base/package-version.ts'
import { dayAfter, utcDay } from '../base/utc-day.ts'
import type { ReplaceableConfiguration } from '../config/live-configuration.ts'
import { nearestName } from '../config/settings/nearest-name.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { HostTls } from '../delivery/protocol/host-tls.ts'
import { dnsProblem } from '../delivery/settle/judge-dns.ts'
import type { FindRoute } from '../delivery/route/route-message.ts'
import type { Egress } from '../egress/egress.ts'
import { sendDays } from '../egress/moves/warmup-forecast.ts'
import type { PathFilter, PathView, Shaping } from '../egress/shaping/shaping.ts'
import type { ProviderChange, Warmup } from '../egress/moves/warmup.ts'
import type { HealthKeeper } from '../health/health-keeper.ts'
import type { Administration, DomainRoute, ReloadResult } from '../http/exchange/administration.ts'
import type { DataAdministration } from '../http/exchange/data-administration.ts'
import { readDomainName } from '../senders/domain-name.ts'
import type { Store } from '../store/store.ts'
import type { LogLevelKeeper } from './log-level.ts'
import type { Reload, ReloadReport } from './reload.ts'

export interface AdministrationParts {
  live: ReplaceableConfiguration
  reload: Reload['reload']
  store: Pick<Store, 'queueGroups' | 'actOnQueue' | 'warmupDays' | 'ipDays'>
  clock: Clock
  logger: Logger
  egress: Pick<Egress, 'ips'>
  warmup: Pick<Warmup, 'find' | 'suspendIp' | 'resumeIp' | 'noteProvider' | 'audit'>
  shaping: Pick<Shaping, 'views' | 'suspend' | 'resume'>
  findRoute: FindRoute
  dispatcher: Pick<Dispatcher, 'noteQueued' | 'backlogOf'>
  health: Pick<HealthKeeper, 'last' | 'run'>
  logLevel: Pick<LogLevelKeeper, 'raise'>
  /** Backups, storage, what is stored about somebody. */
  data: DataAdministration
  /** Events were written. */
  onEvents: () => void
}

/** Of the messages that one action changes: all. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER

export function createAdministration(parts: AdministrationParts): Administration {
  const { live, store, clock, logger, egress, warmup, shaping, dispatcher } = parts

  /** What an operator suspended is told in the audit of its IP. */
  async function resumePaths(filter: PathFilter, actor: string): Promise<number> {
    const byHand = shaping
      .views()
      .filter((view) => fits(view, filter) && view.holds.some(({ scope }) => scope === 'provider'))
    const resumed = shaping.resume(filter)
    for (const { ip, provider } of byHand) {
      if (ip === null || provider === null) continue
      await noteProvider(ip, { action: 'resume_provider', provider, reason: null }, actor)
    }
    return resumed
  }

  /** It is in force already: a store that takes no row now, on a full disk, does not undo it. */
  async function noteProvider(ip: string, change: ProviderChange, actor: string): Promise<void> {
    try {
      await warmup.noteProvider(ip, change, actor)
    } catch (thrown) {
      logger.error({ ip, ...change, actor, error: errorText(thrown) }, 'an action of an operator is not in the audit')
    }
  }

  return {
    ...parts.data,
    async reload(isDryRun) {
      const startedAt = performance.now()
      const result = await attempt(parts, isDryRun)
      return { ...result, milliseconds: performance.now() - startedAt }
    },

    queueGroups: (by, filter) => store.queueGroups(by, filter, clock.now()),

    async actOnQueue(action, filter, isDryRun) {
      if (action.kind === 'move') requirePool(live, action.pool)
      const { messages, queued } = await store.actOnQueue({
        filter,
        action,
        now: clock.now(),
        limit: NO_LIMIT,
        isDryRun,
      })
      if (!isDryRun) {
        dispatcher.noteQueued(queued)
        if (action.kind === 'drop') parts.onEvents()
      }
      return messages
    },

    paths: (filter) => shaping.views().filter((view) => fits(view, filter)),
    resumePaths: async (filter, isDryRun, actor) =>
      isDryRun ? shaping.views().filter((view) => fits(view, filter)).length : resumePaths(filter, actor),

    pools() {
      const { pools, default_pool: defaultPool } = live.current().pools
      return Object.entries(pools).map(([name, settings]) => ({
        name,
        settings,
        isDefault: name === defaultPool,
        ips: egress.ips().filter(({ pool }) => pool === name),
        waiting: Object.values(dispatcher.backlogOf(name)).reduce((sum, count) => sum + count, 0),
      }))
    },

    async suspendIp(ip, { provider, reason }, actor) {
      if (provider === null) return warmup.suspendIp(ip, reason, actor)
      const view = await warmup.find(ip)
      requireProvider(live, provider)
      await shaping.suspend({ ip: view.ip, provider, reason, actor })
      await noteProvider(view.ip, { action: 'suspend_provider', provider, reason }, actor)
      return view
    },
    async resumeIp(ip, provider, actor) {
      if (provider === null) {
        const view = await warmup.resumeIp(ip, actor)
        await resumePaths({ ip: view.ip }, actor)
        return view
      }
      // What was taken out of the files may be resumed still.
      const resumed = await resumePaths({ ip: canonicalIp(ip) ?? ip, provider }, actor)
      if (resumed === 0) requireProvider(live, provider)
      return warmup.find(ip)
    },
    audit: warmup.audit,

    async sendDays(text, past, ahead) {
      const { ip, warmup: ramp } = await warmup.find(text)
      const now = clock.now()
      const [warmupDays, sentDays] = await Promise.all([
        store.warmupDays(ip, dayAfter(utcDay(now), 1 - past)),
        store.ipDays(ip, past),
      ])
      const curve = ramp === null ? null : (live.current().warmup.curves[ramp.curve] ?? null)
      return sendDays({ warmup: ramp, curve, warmupDays, sentDays, now, past, ahead })
    },

    async routeOf(text) {
      const reading = readDomainName(text)
      if (!reading.ok) throw new ServiceError('invalid_request', `domain: "${text}" ${reading.problem}`)
      return routeOf(reading.name, parts.findRoute)
    },
    lastChecks: parts.health.last,
    raiseLogLevel: parts.logLevel.raise,
    server: () => ({
      version: packageVersion(),
      node: process.versions.node,
      revision: live.revision(),
      startedAt: Math.round(performance.timeOrigin),
    }),
    runChecks: parts.health.run,
  }
}

async function attempt(
  { live, reload, egress }: AdministrationParts,
  isDryRun: boolean,
): Promise<Omit<ReloadResult, 'milliseconds'>> {
  try {
    const report = await reload(isDryRun)
    const { revision, changes, moved, warnings: mistakes } = report
    return { isApplied: !isDryRun, revision, changes, lines: printedLines(report, egress), moved, mistakes }
  } catch (thrown) {
    if (!(thrown instanceof ConfigurationError)) throw thrown
    const nothing = { changes: [], lines: [], moved: [] }
    return { isApplied: false, revision: live.revision(), ...nothing, mistakes: thrown.mistakes }
  }
}

/** The line of a new IP says how its warmup begins. */
function printedLines({ isDryRun, changes, lines }: ReloadReport, egress: Pick<Egress, 'ips'>): string[] {
  if (isDryRun) return lines
  const cold = egress.ips().filter(({ state }) => state === 'cold')
  return lines.map((line, index) => {
    const change = changes[index]
    const ip = cold.find(({ address }) => change?.kind === 'added' && change.what === `ip ${address}`)
    return ip === undefined ? line : `${line} (cold; start it with: sternpost ip warmup start ${ip.address})`
  })
}

function requirePool(live: ReplaceableConfiguration, name: string): void {
  const { pools } = live.current().pools
  if (Object.hasOwn(pools, name)) return
  throw new ServiceError('invalid_request', `to_pool: no pool "${name}"; there are ${Object.keys(pools).join(', ')}`)
}

function requireProvider(live: ReplaceableConfiguration, name: string): void {
  const { providers } = live.current().providers
  if (Object.hasOwn(providers, name)) return
  const names = Object.keys(providers)
  // Events and statistics name the isp.
  const meant = names.find((id) => providers[id]?.isp === name) ?? nearestName(name, names)
  const fix = meant === null ? `there are ${names.join(', ')}` : `did you mean "${meant}"?`
  throw new ServiceError('invalid_request', `provider: no block "${name}" in providers.yaml; ${fix}`)
}

function fits(view: PathView, { ip, route, provider }: PathFilter): boolean {
  return (
    (ip === undefined || view.ip === ip) &&
    (route === undefined || view.route === route) &&
    (provider === undefined || view.provider === provider)
  )
}

async function routeOf(domain: string, findRoute: FindRoute): Promise<DomainRoute> {
  const route = await findRoute(domain)
  if (route.kind !== 'hosts') return { domain, problem: dnsProblem(route), provider: null, hosts: [] }
  const hosts = route.hosts.map(({ name, addresses, tls }) => ({
    name,
    addresses,
    tls: { policy: tls.policy.type, demand: tls.kind, text: demandText(tls) },
  }))
  return { domain, problem: null, provider: route.provider, hosts }
}

function demandText(tls: HostTls): string {
  switch (tls.kind) {
    case 'plain':
      return `no TLS: ${tls.reason}`
    case 'opportunistic':
      return 'TLS where the host announces it'
    case 'required':
      return `TLS with any certificate, asked for by ${tls.by}`
    case 'verified':
      return `TLS with a certificate of a known authority for ${tls.names.join(' or ')}`
    case 'dane':
      return 'TLS with a certificate that a TLSA record names'
    case 'skip':
      return `not tried: ${tls.reason}`
    default:
      return unreachable(tls)
  }
}
