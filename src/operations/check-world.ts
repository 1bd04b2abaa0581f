/**
 * What the checks of a running server look at: its configuration and IPs, the files as they are now, and what only the
 * running server knows. ServiceError `invalid_request` for an IP that is in no pool.
 */
import { MINUTE, type Clock } from '../base/clock.ts'
import type { IsClockSteady } from '../base/clock-watch.ts'
import { ConfigurationError, ServiceError } from '../base/errors.ts'
import type { Metrics } from '../base/metrics.ts'
import { pagesOf } from '../base/pages.ts'
import type { LiveConfiguration } from '../config/live-configuration.ts'
import type { Warmup } from '../egress/moves/warmup.ts'
import type { CheckWorld, FilesNow, ServerFacts } from '../health/checks/world.ts'
import type { AskedChecks } from '../health/health-keeper.ts'
import { EVERYTHING } from '../mail/reach.ts'
import type { DomainView } from '../senders/domain-view.ts'
import type { Domains } from '../senders/domains.ts'
import { quickCheck } from '../store/open/quick-check.ts'
import type { WebhookEndpointState } from '../store/records/webhook-records.ts'
import type { Nodes } from '../nodes/nodes.ts'
import type { Store } from '../store/store.ts'
import type { Reload } from './reload.ts'

export interface CheckWorldParts
  extends Pick<CheckWorld, 'resolver' | 'blocklistResolver' | 'fetchDocument'>, Pick<Reload, 'reload'> {
  live: LiveConfiguration
  clock: Clock
  store: Store
  metrics: Metrics
  domains: Domains
  warmup: Warmup
  folder: string
  isClockSteady: IsClockSteady
  growthPerDay(): number | null
  nodes: Pick<Nodes, 'nodeId' | 'problems' | 'isElsewhere'>
}

const PAGE = 100
/** With more of them the last check of each, which is some hours old at most, has to do. */
const MOST_ASKED_ANEW = 20
const OVERDUE_AFTER = MINUTE
const STUCK_AFTER = 30 * MINUTE

export function checkWorld(parts: CheckWorldParts, asked: AskedChecks, isAwaited: boolean): CheckWorld {
  const configuration = parts.live.current()
  // The node that sends from an IP looks at it: it is on that machine, and nowhere else.
  const isLookedAt = (ip: string): boolean => asked.ip === ip || (asked.ip === null && !parts.nodes.isElsewhere(ip))
  const ips = Object.entries(configuration.pools.pools).flatMap(([pool, { ips: ofPool }]) =>
    ofPool
      .filter(({ address, enabled }) => isLookedAt(address) && (enabled || asked.ip !== null))
      .map(({ address, source, hostname }) => ({ address, source, hostname, pool })),
  )
  if (asked.ip !== null && ips.length === 0) throw new ServiceError('invalid_request', `ip: ${asked.ip} is in no pool`)
  const { clock, resolver, blocklistResolver, fetchDocument } = parts
  const outside = { clock, resolver, blocklistResolver, fetchDocument }
  const server = serverFacts(parts, isAwaited)
  const filesNow = (): Promise<FilesNow> => readFiles(parts.reload)
  return { ...outside, configuration, ips, folder: null, domain: asked.domain, filesNow, server }
}

async function readFiles(reload: Reload['reload']): Promise<FilesNow> {
  try {
    const { lines, warnings } = await reload(true)
    return { mistakes: warnings, changes: lines }
  } catch (thrown) {
    if (thrown instanceof ConfigurationError) return { mistakes: thrown.mistakes, changes: [] }
    throw thrown
  }
}

/** `isAwaited`: somebody waits, so the DNS is asked anew. */
function serverFacts(parts: CheckWorldParts, isAwaited: boolean): ServerFacts {
  const { store, clock, metrics, warmup, growthPerDay } = parts
  /** Several checks of a run look at them. */
  const known = new Map<string | null, Promise<DomainView[]>>()
  return {
    isClockSteady: () => parts.isClockSteady(),
    nodes: async () => ({ nodeId: parts.nodes.nodeId, problems: parts.nodes.problems(), ...(await store.nodesSeen()) }),
    domains(only) {
      const views = known.get(only) ?? domainsOf(parts.domains, only, isAwaited)
      known.set(only, views)
      return views
    },
    ips: warmup.list,
    certificates: () => store.certificates(),
    async queue() {
      const now = clock.now()
      const [{ oldestDueAt }, watched, groups] = await Promise.all([
        store.queueSummary(now),
        store.watchQueue(now - OVERDUE_AFTER, now - STUCK_AFTER),
        store.queueGroups('isp', {}, now),
      ])
      return { oldestDueAt, ...watched, groups }
    },
    async orphans() {
      const { values } = await metrics.orphans.get()
      const countOf = (kind: string): number => values.find(({ labels }) => labels.kind === kind)?.value ?? 0
      return { messages: countOf('message'), webhooks: countOf('webhook'), upMilliseconds: performance.now() }
    },
    async webhooks() {
      const [endpoints, { webhooks }] = await Promise.all([endpointsOf(store), store.figures()])
      return { endpoints, oldestDueAt: webhooks.oldestMadeAt }
    },
    reportSums: (since) => store.reportSums(since),
    async database() {
      const figures = await store.figures()
      return {
        bytes: figures.database,
        walBytes: figures.writeAheadLog,
        growthPerDay: growthPerDay(),
        commitMilliseconds: store.commitTime(),
      }
    },
    databaseRefusal: () => store.refusal(),
    quickCheck: () => quickCheck(parts.folder),
  }
}

async function domainsOf(domains: Domains, only: string | null, isAwaited: boolean): Promise<DomainView[]> {
  const found: DomainView[] = []
  if (only === null) {
    const pages = pagesOf((after) => domains.list({ status: 'all', limit: PAGE, after }))
    for await (const page of pages) found.push(...page.domains)
  } else {
    const view = await domains.find(only)
    if (view !== null) found.push(view)
  }
  // One that was never verified is still being set up.
  const sending = found.filter(({ verified_at: verifiedAt }) => verifiedAt !== null)
  if (!isAwaited || sending.length > MOST_ASKED_ANEW) return sending
  return Promise.all(sending.map(async ({ domain }) => (await domains.verify(domain)).record))
}

async function endpointsOf(store: Pick<Store, 'listWebhookEndpoints'>): Promise<WebhookEndpointState[]> {
  const found: WebhookEndpointState[] = []
  const pages = pagesOf((after) => store.listWebhookEndpoints(EVERYTHING, PAGE, after))
  for await (const { endpoints } of pages) found.push(...endpoints)
  return found
}
