/**
 * What an operator asks of the running server, behind the routes of administration (commands/README.md "The command
 * line"): the reload, the queue, paths, pools, IPs, the route of a domain, the checks, the data.
 */
import type { Clock } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { packageVersion } from '../base/package-version.ts'
import { createSharedAnswers } from '../base/shared-answers.ts'
import { dayAfter, utcDay } from '../base/utc-day.ts'
import type { ReplaceableConfiguration } from '../config/live-configuration.ts'
import type { Dispatcher } from '../delivery/dispatcher.ts'
import type { FindRoute } from '../delivery/route/route-message.ts'
import type { Egress } from '../egress/egress.ts'
import { sendDays } from '../egress/moves/warmup-forecast.ts'
import type { Warmup } from '../egress/moves/warmup.ts'
import type { HealthKeeper } from '../health/health-keeper.ts'
import type {
  Administration,
  CertificateAdministration,
  DataAdministration,
  DomainRoute,
} from '../http/exchange/operator-features.ts'
import type { QueueFilter, QueueGroup } from '../mail/waiting-mail.ts'
import type { Store } from '../store/store.ts'
import type { LogLevelKeeper } from './log-level.ts'
import type { Nodes } from '../nodes/nodes.ts'
import { createNodeAdministration } from './node-administration.ts'
import { reloadResult, type Reload } from './reload.ts'
import { createSuspensions, requireIp, type SuspensionParts } from './suspend-and-resume.ts'
import type { HostTls } from '../delivery/protocol/host-tls.ts'
import { dnsProblem } from '../delivery/settle/judge-dns.ts'
import { readDomainName } from '../senders/domain-name.ts'

interface AdministrationParts extends SuspensionParts {
  nodes: SuspensionParts['nodes'] & Pick<Nodes, 'nodeId' | 'problems' | 'wake'>
  live: ReplaceableConfiguration
  reload: Reload['reload']
  store: Pick<
    Store,
    | 'queueGroups'
    | 'actOnQueue'
    | 'findDomain'
    | 'queuedMessages'
    | 'moveOrphans'
    | 'warmupDays'
    | 'ipDays'
    | 'nodesSeen'
    | 'drainNode'
    | 'forgetNode'
  >
  clock: Clock
  egress: Pick<Egress, 'ips'>
  warmup: SuspensionParts['warmup'] & Pick<Warmup, 'audit'>
  findRoute: FindRoute
  dispatcher: Pick<Dispatcher, 'noteQueued' | 'backlogOf' | 'wake'>
  health: Pick<HealthKeeper, 'last' | 'run'>
  logLevel: Pick<LogLevelKeeper, 'raise'>
  /** Backups, storage, what is stored about somebody. */
  data: DataAdministration
  certificateAdministration: CertificateAdministration
  onEvents: () => void
}

/** Of the messages that one action changes: all. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER

export function createAdministration(parts: AdministrationParts): Administration {
  const { live, store, clock, warmup } = parts
  return {
    ...parts.data,
    ...parts.certificateAdministration,
    ...createNodeAdministration(parts),
    ...createSuspensions(parts),
    reload: (isDryRun) => reloadResult(parts, isDryRun),
    ...createQueueAdministration(parts),
    pools: () => poolStates(parts),
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
    routeOf: (text) => domainRoute(text, parts.findRoute),
    lastChecks: parts.health.last,
    runChecks: parts.health.run,
    raiseLogLevel: parts.logLevel.raise,
    server() {
      const startedAt = Math.round(performance.timeOrigin)
      return { version: packageVersion(), node: process.versions.node, revision: live.revision(), startedAt }
    },
  }
}

/** To walk over a million waiting mails takes the store seconds, and every open page of the console asks for it. */
function createQueueAdministration(parts: AdministrationParts): Pick<Administration, 'queueGroups' | 'actOnQueue'> {
  const { live, store, clock } = parts
  const walks = createSharedAnswers<QueueGroup[]>()
  return {
    async queueGroups(by, filter) {
      requireIsp(live, filter)
      const groups = await walks.get(JSON.stringify([by, filter]), () => store.queueGroups(by, filter, clock.now()))
      if (groups.length === 0) await requireNames(parts, filter)
      return groups
    },
    async actOnQueue(action, filter, isDryRun) {
      requireIsp(live, filter)
      const acted = actOnQueue(parts, action, filter, isDryRun)
      const messages = await (isDryRun ? acted : acted.finally(walks.forget))
      if (messages === 0) await requireNames(parts, filter)
      return messages
    },
  }
}

/** Mail waits under the isp: the id of a block, which paths and suspensions have, would name no mail. */
function requireIsp(live: ReplaceableConfiguration, { isp: name }: QueueFilter): void {
  const { providers } = live.current().providers
  const block = name !== undefined && Object.hasOwn(providers, name) ? providers[name] : undefined
  if (block === undefined || Object.values(providers).some(({ isp }) => isp === name)) return
  const ids = Object.keys(providers).filter((id) => providers[id]?.isp === block.isp)
  throw new ServiceError(
    'invalid_request',
    `provider: mail of the block "${name}" waits as "${block.isp}": write that; it is all mail of ${ids.join(', ')}`,
  )
}

/** No mail fits a misspelt name, and "0 messages" would read as if none waited. Mail may outlive its domain. */
async function requireNames({ live, store }: AdministrationParts, { pool, domain, ip }: QueueFilter): Promise<void> {
  requireIp(live, ip)
  if (pool !== undefined) requirePool(live, pool, 'pool')
  if (domain === undefined || (await store.findDomain(domain)) !== null) return
  if ((await store.queuedMessages(domain)) > 0) return
  throw new ServiceError('invalid_request', `domain: no sending domain "${domain}", and no mail of it waits`)
}

/** The dispatcher is told of what is due otherwise now. */
async function actOnQueue(
  { live, store, clock, dispatcher, onEvents }: AdministrationParts,
  ...[action, filter, isDryRun]: Parameters<Administration['actOnQueue']>
): Promise<number> {
  if (action.kind === 'move') requirePool(live, action.pool, 'to_pool')
  const { messages, queued } = await store.actOnQueue({ filter, action, now: clock.now(), limit: NO_LIMIT, isDryRun })
  if (isDryRun) return messages
  dispatcher.noteQueued(queued)
  const { pools, default_pool: target } = live.current().pools
  if (action.kind === 'move' && !Object.hasOwn(pools, action.pool)) {
    // A reload has removed the pool, and moved its mail, before the last part came there.
    await store.moveOrphans(Object.keys(pools), target)
    dispatcher.wake()
  }
  // A release cancels what was erased.
  if (action.kind === 'drop' || action.kind === 'release') onEvents()
  return messages
}

function poolStates({ live, egress, dispatcher }: AdministrationParts): ReturnType<Administration['pools']> {
  const { pools, default_pool: defaultPool } = live.current().pools
  return Object.entries(pools).map(([name, settings]) => ({
    name,
    settings,
    isDefault: name === defaultPool,
    ips: egress.ips().filter(({ pool }) => pool === name),
    waiting: Object.values(dispatcher.backlogOf(name)).reduce((sum, count) => sum + count, 0),
  }))
}

function requirePool(live: ReplaceableConfiguration, name: string, field: 'pool' | 'to_pool'): void {
  const { pools } = live.current().pools
  if (Object.hasOwn(pools, name)) return
  throw new ServiceError('invalid_request', `${field}: no pool "${name}"; there are ${Object.keys(pools).join(', ')}`)
}

/** `text` as the operator wrote it. ServiceError `invalid_request` for what is no domain. */
async function domainRoute(text: string, findRoute: FindRoute): Promise<DomainRoute> {
  const reading = readDomainName(text)
  if (!reading.ok) throw new ServiceError('invalid_request', `domain: "${text}" ${reading.problem}`)
  const domain = reading.name
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
  }
}
