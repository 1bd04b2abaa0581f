/**
 * The registry and every metric name, in one place (health/README.md "Metrics and alerts"). Recording never throws and
 * never blocks. What is known only by asking is asked when somebody reads; a part that does not answer in time keeps
 * its last value.
 */
import { availableParallelism } from 'node:os'
import type { EventLoopUtilization } from 'node:perf_hooks'
import type { Worker } from 'node:worker_threads'
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import { SECOND } from './clock.ts'
import { packageVersion } from './package-version.ts'

export type Metrics = ReturnType<typeof createMetrics>

/** Seconds: from half a millisecond to five. */
const SHORT_BUCKETS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
/** Seconds: what waits for another server. */
const REMOTE_BUCKETS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 600]
/** Seconds: from acceptance to delivery, through greylisting and a day of retries. */
const LATENCY_BUCKETS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400]
const BATCH_BUCKETS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]

export function createMetrics() {
  const registry = new Registry()
  const make = makersIn(registry)
  const askedFirst: (() => void | Promise<void>)[] = []
  collectDefaultMetrics({ register: registry })
  const buildInfo = make.gauge('build_info', 'Always 1: which version runs, on what', ['version', 'node', 'cores'])
  buildInfo.set({ version: packageVersion(), node: process.version, cores: String(availableParallelism()) }, 1)
  const { watchThread, measureThreads } = createThreadWatch(make)
  const queue = queueMetrics(make)
  // An alert on an increase needs to see the 0 before it.
  for (const kind of ['message', 'webhook']) queue.orphans.inc({ kind }, 0)
  return {
    registry,
    /** A worker thread of this process, under a name that its successor takes over. */
    watchThread,
    /** Runs whenever somebody reads. */
    beforeReading(ask: () => void | Promise<void>): void {
      askedFirst.push(ask)
    },
    /** In the Prometheus text format. Never rejects for what a part could not say. */
    async text(): Promise<string> {
      measureThreads()
      await inTime(Promise.allSettled(askedFirst.map(async (ask) => ask())))
      return registry.metrics()
    },
    ...acceptanceMetrics(make),
    ...deliveryMetrics(make),
    ...queue,
    ...dnsMetrics(make),
    ...reputationMetrics(make),
    ...webhookMetrics(make),
    ...storeMetrics(make),
    ...hostMetrics(make),
  }
}

/** Readers give up after ten seconds by themselves: figures of a store that hangs must not take all others along. */
const LONGEST_ASKING = 3 * SECOND

async function inTime(answers: Promise<unknown>): Promise<void> {
  const { promise: over, resolve: end } = Promise.withResolvers<void>()
  const timer = setTimeout(end, LONGEST_ASKING)
  await Promise.race([answers, over])
  clearTimeout(timer)
}

type Make = ReturnType<typeof makersIn>

function makersIn(registry: Registry) {
  const registers = [registry]
  const named = <Label extends string>(name: string, help: string, labelNames: readonly Label[]) => ({
    name: `sternpost_${name}`,
    help,
    labelNames,
    registers,
  })
  return {
    counter: <Label extends string>(name: string, help: string, labels: readonly Label[] = []) =>
      new Counter<Label>(named(name, help, labels)),
    gauge: <Label extends string>(name: string, help: string, labels: readonly Label[] = []) =>
      new Gauge<Label>(named(name, help, labels)),
    histogram: <Label extends string>(name: string, help: string, buckets: number[], labels: readonly Label[] = []) =>
      new Histogram<Label>({ ...named(name, help, labels), buckets }),
  }
}

const acceptanceMetrics = ({ counter, histogram }: Make) => ({
  messagesAccepted: counter('messages_accepted_total', 'Messages committed to the queue', ['source']),
  messagesRejected: counter('messages_rejected_total', 'Requests refused, by error code', ['code']),
  submissionSessions: counter('smtp_submission_sessions_total', 'Logins by SMTP: accepted, refused, or limited', [
    'result',
  ]),
  httpRequestSeconds: histogram('http_request_seconds', 'Time to answer a request', SHORT_BUCKETS, [
    'route',
    'method',
    'status',
  ]),
  opens: counter('opens_total', 'Fetches of pixels, by people or machines', ['machine']),
  clicks: counter('clicks_total', 'Followed links, by people or machines', ['machine']),
  engagementDropped: counter('engagement_dropped_total', 'Opens and clicks that were not kept: too many waited'),
})

const deliveryMetrics = ({ counter, gauge, histogram }: Make) => ({
  deliveries: counter('deliveries_total', 'Outcomes of delivery attempts', ['result', 'pool', 'ip', 'provider']),
  deliveryAttemptSeconds: histogram('delivery_attempt_seconds', 'Time of one attempt on the wire', REMOTE_BUCKETS, [
    'provider',
  ]),
  deliveryLatencySeconds: histogram(
    'delivery_latency_seconds',
    'Time from acceptance, or from the planned time, to delivery',
    LATENCY_BUCKETS,
    ['pool'],
  ),
  smtpReplies: counter('smtp_replies_total', 'What hosts answered, by first digit and stage', [
    'class',
    'stage',
    'provider',
  ]),
  smtpConnections: gauge('smtp_connections', 'Open connections to mail hosts', ['ip', 'provider']),
  smtpTls: counter('smtp_tls_total', 'What connections said about TLS (result types of RFC 8460)', [
    'policy',
    'result',
  ]),
  uncertainDeliveries: counter(
    'uncertain_deliveries_total',
    'Final dots whose answer was lost: sent again, perhaps twice',
  ),
})

const queueMetrics = ({ counter, gauge }: Make) => ({
  nodesLiving: gauge('nodes_living', 'Nodes that work with this database, as this one sees them'),
  egressIpsHeld: gauge('egress_ips_held', 'Egress IPs that this node sends from, where there are several nodes'),
  leasesRecovered: counter('leases_recovered_total', 'Messages taken back from a process or thread that died'),
  orphans: counter(
    'orphans_total',
    "Messages and webhook deliveries that were in nobody's hand and were given back; 0 in health",
    ['kind'],
  ),
  queueMessages: gauge('queue_messages', 'Messages that are not final', ['state', 'pool']),
  queueOldest: gauge('queue_oldest_seconds', 'How long the message waits that has been due the longest', ['pool']),
  queueWaiting: gauge('queue_waiting_messages', 'Messages that are held back, by what holds them', ['reason']),
})

const dnsMetrics = ({ counter, histogram }: Make) => ({
  dnsLookupSeconds: histogram('dns_lookup_seconds', 'Time of one question to the name servers', SHORT_BUCKETS, [
    'type',
  ]),
  dnsFailures: counter('dns_failures_total', 'Questions without an answer', ['kind']),
  dnsCacheHits: counter('dns_cache_hits_total', 'Questions that were answered from memory'),
})

const reputationMetrics = ({ counter, gauge }: Make) => ({
  inboundMessages: counter('inbound_messages_total', 'Mails that came in for us, by what they are', ['kind']),
  reportsIgnored: counter('reports_ignored_total', 'Reports that changed nothing, and why', ['why']),
  bounces: counter('bounces_total', 'Messages that ended without delivery, or bounced after it', ['type', 'provider']),
  complaints: counter('complaints_total', 'Messages that were reported as spam', ['provider']),
  suppressions: counter('suppressions_total', 'Addresses that nothing is sent to any more, by what brought it about', [
    'reason',
  ]),
  ipWarmupLimit: gauge('ip_warmup_limit', 'Messages a warming IP may send in this UTC day', ['ip']),
  ipWarmupUsed: gauge('ip_warmup_used', 'Messages of this UTC day that took warmup allowance', ['ip']),
  ipWarmupStage: gauge('ip_warmup_stage', 'Stage of the warmup curve', ['ip']),
  ipState: gauge('ip_state', '1 for the state an IP is in', ['ip', 'state']),
  ipListed: gauge('ip_listed', '1: the blocklist has the IP; 0: it does not; no value: it did not say', ['ip', 'list']),
})

const webhookMetrics = ({ counter, gauge, histogram }: Make) => ({
  webhookDeliveries: counter('webhook_deliveries_total', 'Webhook attempts by result', ['result']),
  webhookAttemptSeconds: histogram('webhook_attempt_seconds', 'Time an endpoint took to answer', REMOTE_BUCKETS),
  webhookQueue: gauge('webhook_queue', 'Events on their way to endpoints'),
  webhookOldest: gauge('webhook_oldest_seconds', 'Age of the oldest delivery that an enabled endpoint has not taken'),
  webhookDeadLetters: gauge('webhook_dead_letters', 'Events that were given up, and are kept'),
})

const storeMetrics = ({ counter, gauge, histogram }: Make) => ({
  storeAnswers: gauge('store_answers', '1: the database answers; 0: its server does not'),
  storeAbsences: counter('store_absences_total', 'Times that the server of the database did not answer any more'),
  storeCommitSeconds: histogram('store_commit_seconds', 'Time of one group commit', SHORT_BUCKETS),
  storeBatchSize: histogram('store_batch_size', 'Verbs that shared one commit', BATCH_BUCKETS),
  storeMessagesPerCommit: histogram(
    'store_messages_per_commit',
    'Accepted messages that shared one commit',
    BATCH_BUCKETS,
  ),
  walBytes: gauge('sqlite_wal_bytes', 'Size of the write-ahead log'),
  walMaxBytes: gauge('sqlite_wal_max_bytes', 'storage.wal_max: above it a checkpoint is forced'),
  databaseBytes: gauge('database_bytes', 'Size of the database file'),
  postgresConnections: gauge('postgres_connections', 'Connections to the server of PostgreSQL, of everybody'),
  postgresMostConnections: gauge('postgres_connections_max', 'Connections that it takes of roles like ours'),
  postgresDeadRows: gauge('postgres_dead_rows', 'Rows of a table that wait for vacuum', ['table']),
  postgresOldestSnapshot: gauge('postgres_oldest_snapshot_seconds', 'Age of the oldest transaction that keeps them'),
  postgresUnsafeStandbys: gauge('postgres_unsafe_standbys', 'Standbys that a failover would lose mail to'),
  diskFreeBytes: gauge('disk_free_bytes', 'Space on the disk of the database that is free for us'),
  diskMinFreeBytes: gauge('disk_min_free_bytes', 'storage.min_free_accept: below it nothing new is accepted'),
  backupLastSuccess: gauge('backup_last_success_timestamp_seconds', 'When the newest whole backup was made'),
})

const hostMetrics = ({ gauge }: Make) => ({
  configurationReloads: gauge(
    'config_last_reload_success',
    '1: the last reload took the files over; 0: it refused them',
  ),
  healthCheckStatus: gauge('health_check_status', 'The worst result of a check: 0 ok, 1 warning, 2 failure', ['check']),
  certificateExpiry: gauge('tls_certificate_expiry_timestamp_seconds', 'When a certificate of our listeners ends', [
    'certificate',
  ]),
})

/**
 * What worker threads use: prom-client's own metrics know the main thread alone. A thread that takes the place of
 * another takes its name over; one that has ended is left out.
 */
function createThreadWatch({ gauge }: Make) {
  const help = 'Share of the time since the last reading that a thread worked'
  const utilization = gauge('thread_event_loop_utilization', help, ['thread'])
  const watched = new Map<string, { worker: Worker; before: EventLoopUtilization }>()
  return {
    watchThread(name: string, worker: Worker): void {
      watched.set(name, { worker, before: worker.performance.eventLoopUtilization() })
      worker.once('exit', () => {
        if (watched.get(name)?.worker !== worker) return
        watched.delete(name)
        utilization.remove({ thread: name })
      })
    },
    measureThreads(): void {
      for (const [name, thread] of watched) {
        const now = thread.worker.performance.eventLoopUtilization()
        // Between two readings in the same instant nothing was measured; the clocks of two threads differ a little.
        const { utilization: share } = thread.worker.performance.eventLoopUtilization(now, thread.before)
        if (Number.isFinite(share)) utilization.set({ thread: name }, Math.max(0, share))
        thread.before = now
      }
    },
  }
}
