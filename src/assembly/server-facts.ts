/**
 * What only the running server knows, as its checks ask for it.
 */
import { MINUTE, SECOND } from '../base/clock.ts'
import type { ServerFacts } from '../health/checks/world.ts'
import type { DomainView } from '../senders/domain-view.ts'
import { quickCheck } from '../store/open/quick-check.ts'
import type { Store } from '../store/store.ts'
import type { WebhookEndpointState } from '../store/records/webhook-records.ts'
import type { Foundation } from './foundation.ts'
import type { MailParts } from './mail.ts'

export interface ServerFactsParts extends Pick<MailParts, 'domains' | 'warmup'> {
  /** Somebody waits: the DNS is asked anew. */
  isAwaited: boolean
  growthPerDay(): number | null
}

const PAGE = 100
/** With more of them the last check of each, which is some hours old at most, has to do. */
const MOST_ASKED_ANEW = 20
const OVERDUE_AFTER = MINUTE
const STUCK_AFTER = 30 * MINUTE

export function serverFacts(foundation: Foundation, parts: ServerFactsParts): ServerFacts {
  const { store, clock, metrics, configuration } = foundation
  /** Several checks of a run look at them. */
  const known = new Map<string | null, Promise<DomainView[]>>()
  return {
    domains(only) {
      const views = known.get(only) ?? domainsOf(parts, only)
      known.set(only, views)
      return views
    },
    ips: () => parts.warmup.list(),
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
      return { endpoints, oldestDueAt: webhooks.oldestEventAt }
    },
    reportSums: (since) => store.reportSums(since),
    async database() {
      const [figures, commits] = await Promise.all([store.figures(), metrics.storeCommitSeconds.get()])
      const total = (ending: string): number =>
        commits.values.find(({ metricName }) => metricName?.endsWith(ending) === true)?.value ?? 0
      const count = total('_count')
      return {
        bytes: figures.database,
        walBytes: figures.writeAheadLog,
        growthPerDay: parts.growthPerDay(),
        commitMilliseconds: count === 0 ? null : (SECOND * total('_sum')) / count,
      }
    },
    quickCheck: () => quickCheck(configuration.server.data_dir),
  }
}

async function domainsOf({ domains, isAwaited }: ServerFactsParts, only: string | null): Promise<DomainView[]> {
  const found: DomainView[] = []
  if (only === null) {
    for (let after: string | null | undefined; after !== null;) {
      const page = await domains.list({ status: 'all', limit: PAGE, after: after ?? null })
      found.push(...page.domains)
      after = page.next
    }
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
  for (let after: string | null | undefined; after !== null;) {
    const page = await store.listWebhookEndpoints(PAGE, after ?? null)
    found.push(...page.endpoints)
    after = page.next
  }
  return found
}
