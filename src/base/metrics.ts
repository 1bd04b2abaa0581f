/**
 * The registry and every metric name, in one place (health/README.md "Metrics and alerts").
 *
 * Labels have few values: never a recipient, a message id, a sending domain or a URL; `provider` is an id of
 * providers.yaml or `other`. Recording never throws and never blocks. What is only known by asking is asked when
 * somebody reads (`beforeReading`): a part that can not say, or not in time, keeps its last value, and the others are
 * still told.
 */
import { availableParallelism } from 'node:os'
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import { SECOND } from './clock.ts'
import { packageVersion } from './package-version.ts'
import { createThreadWatch } from './thread-watch.ts'

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
  const registers = [registry]
  const askedFirst: (() => void | Promise<void>)[] = []
  collectDefaultMetrics({ register: registry })
  const buildInfo = new Gauge({
    name: 'sternpost_build_info',
    help: 'Always 1: which version runs, on what',
    labelNames: ['version', 'node', 'cores'],
    registers,
  })
  buildInfo.set({ version: packageVersion(), node: process.version, cores: String(availableParallelism()) }, 1)
  const { watchThread, measureThreads } = createThreadWatch(registry)
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
    ...acceptanceMetrics(registers),
    ...deliveryMetrics(registers),
    ...queueMetrics(registers),
    ...dnsMetrics(registers),
    ...reputationMetrics(registers),
    ...webhookMetrics(registers),
    ...storeMetrics(registers),
    ...hostMetrics(registers),
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

/** An alert on an increase needs to see the 0 before it. */
function countersFromZero<Label extends string>(
  counter: Counter<Label>,
  label: Label,
  values: readonly string[],
): Counter<Label> {
  for (const value of values) counter.inc({ [label]: value } as Partial<Record<Label, string>>, 0)
  return counter
}

type Registers = { registers: Registry[] }['registers']

function acceptanceMetrics(registers: Registers) {
  return {
    messagesAccepted: new Counter({
      name: 'sternpost_messages_accepted_total',
      help: 'Messages committed to the queue',
      labelNames: ['source'],
      registers,
    }),
    messagesRejected: new Counter({
      name: 'sternpost_messages_rejected_total',
      help: 'Requests refused, by error code',
      labelNames: ['code'],
      registers,
    }),
    submissionSessions: new Counter({
      name: 'sternpost_smtp_submission_sessions_total',
      help: 'Logins by SMTP: accepted, refused, or limited',
      labelNames: ['result'],
      registers,
    }),
    httpRequestSeconds: new Histogram({
      name: 'sternpost_http_request_seconds',
      help: 'Time to answer a request',
      labelNames: ['route', 'method', 'status'],
      buckets: SHORT_BUCKETS,
      registers,
    }),
    opens: new Counter({
      name: 'sternpost_opens_total',
      help: 'Fetches of pixels, by people or machines',
      labelNames: ['machine'],
      registers,
    }),
    clicks: new Counter({
      name: 'sternpost_clicks_total',
      help: 'Followed links, by people or machines',
      labelNames: ['machine'],
      registers,
    }),
    engagementDropped: new Counter({
      name: 'sternpost_engagement_dropped_total',
      help: 'Opens and clicks that were not kept: too many waited',
      registers,
    }),
  }
}

function deliveryMetrics(registers: Registers) {
  return {
    deliveries: new Counter({
      name: 'sternpost_deliveries_total',
      help: 'Outcomes of delivery attempts',
      labelNames: ['result', 'pool', 'ip', 'provider'],
      registers,
    }),
    deliveryAttemptSeconds: new Histogram({
      name: 'sternpost_delivery_attempt_seconds',
      help: 'Time of one attempt on the wire',
      labelNames: ['provider'],
      buckets: REMOTE_BUCKETS,
      registers,
    }),
    deliveryLatencySeconds: new Histogram({
      name: 'sternpost_delivery_latency_seconds',
      help: 'Time from acceptance, or from the planned time, to delivery',
      labelNames: ['pool'],
      buckets: LATENCY_BUCKETS,
      registers,
    }),
    smtpReplies: new Counter({
      name: 'sternpost_smtp_replies_total',
      help: 'What hosts answered, by first digit and stage',
      labelNames: ['class', 'stage', 'provider'],
      registers,
    }),
    smtpConnections: new Gauge({
      name: 'sternpost_smtp_connections',
      help: 'Open connections to mail hosts',
      labelNames: ['ip', 'provider'],
      registers,
    }),
    smtpTls: new Counter({
      name: 'sternpost_smtp_tls_total',
      help: 'What connections said about TLS (result types of RFC 8460)',
      labelNames: ['policy', 'result'],
      registers,
    }),
    uncertainDeliveries: new Counter({
      name: 'sternpost_uncertain_deliveries_total',
      help: 'Final dots whose answer was lost: sent again, perhaps twice',
      registers,
    }),
  }
}

function queueMetrics(registers: Registers) {
  return {
    leasesRecovered: new Counter({
      name: 'sternpost_leases_recovered_total',
      help: 'Messages taken back from a process or thread that died',
      registers,
    }),
    orphans: countersFromZero(
      new Counter({
        name: 'sternpost_orphans_total',
        help: "Messages and webhook deliveries that were in nobody's hand and were given back; 0 in health",
        labelNames: ['kind'],
        registers,
      }),
      'kind',
      ['message', 'webhook'],
    ),
    queueMessages: new Gauge({
      name: 'sternpost_queue_messages',
      help: 'Messages that are not final',
      labelNames: ['state', 'pool'],
      registers,
    }),
    queueOldest: new Gauge({
      name: 'sternpost_queue_oldest_seconds',
      help: 'How long the message waits that has been due the longest',
      labelNames: ['pool'],
      registers,
    }),
    queueWaiting: new Gauge({
      name: 'sternpost_queue_waiting_messages',
      help: 'Messages that are held back, by what holds them',
      labelNames: ['reason'],
      registers,
    }),
  }
}

function dnsMetrics(registers: Registers) {
  return {
    dnsLookupSeconds: new Histogram({
      name: 'sternpost_dns_lookup_seconds',
      help: 'Time of one question to the name servers',
      labelNames: ['type'],
      buckets: SHORT_BUCKETS,
      registers,
    }),
    dnsFailures: new Counter({
      name: 'sternpost_dns_failures_total',
      help: 'Questions without an answer',
      labelNames: ['kind'],
      registers,
    }),
    dnsCacheHits: new Counter({
      name: 'sternpost_dns_cache_hits_total',
      help: 'Questions that were answered from memory',
      registers,
    }),
  }
}

function reputationMetrics(registers: Registers) {
  return {
    inboundMessages: new Counter({
      name: 'sternpost_inbound_messages_total',
      help: 'Mails that came in for us, by what they are',
      labelNames: ['kind'],
      registers,
    }),
    reportsIgnored: new Counter({
      name: 'sternpost_reports_ignored_total',
      help: 'Reports that changed nothing, and why',
      labelNames: ['why'],
      registers,
    }),
    bounces: new Counter({
      name: 'sternpost_bounces_total',
      help: 'Messages that ended without delivery, or bounced after it',
      labelNames: ['type', 'provider'],
      registers,
    }),
    complaints: new Counter({
      name: 'sternpost_complaints_total',
      help: 'Messages that were reported as spam',
      labelNames: ['provider'],
      registers,
    }),
    suppressions: new Counter({
      name: 'sternpost_suppressions_total',
      help: 'Addresses that nothing is sent to any more, by what brought it about',
      labelNames: ['reason'],
      registers,
    }),
    ipWarmupLimit: new Gauge({
      name: 'sternpost_ip_warmup_limit',
      help: 'Messages a warming IP may send in this UTC day',
      labelNames: ['ip'],
      registers,
    }),
    ipWarmupUsed: new Gauge({
      name: 'sternpost_ip_warmup_used',
      help: 'Messages of this UTC day that took warmup allowance',
      labelNames: ['ip'],
      registers,
    }),
    ipWarmupStage: new Gauge({
      name: 'sternpost_ip_warmup_stage',
      help: 'Stage of the warmup curve',
      labelNames: ['ip'],
      registers,
    }),
    ipState: new Gauge({
      name: 'sternpost_ip_state',
      help: '1 for the state an IP is in',
      labelNames: ['ip', 'state'],
      registers,
    }),
    ipListed: new Gauge({
      name: 'sternpost_ip_listed',
      help: '1: the blocklist has the IP; 0: it does not; no value: it did not say',
      labelNames: ['ip', 'list'],
      registers,
    }),
  }
}

function webhookMetrics(registers: Registers) {
  return {
    webhookDeliveries: new Counter({
      name: 'sternpost_webhook_deliveries_total',
      help: 'Webhook attempts by result',
      labelNames: ['result'],
      registers,
    }),
    webhookAttemptSeconds: new Histogram({
      name: 'sternpost_webhook_attempt_seconds',
      help: 'Time an endpoint took to answer',
      buckets: REMOTE_BUCKETS,
      registers,
    }),
    webhookQueue: new Gauge({ name: 'sternpost_webhook_queue', help: 'Events on their way to endpoints', registers }),
    webhookOldest: new Gauge({
      name: 'sternpost_webhook_oldest_seconds',
      help: 'Age of the oldest event that an enabled endpoint has not taken',
      registers,
    }),
    webhookDeadLetters: new Gauge({
      name: 'sternpost_webhook_dead_letters',
      help: 'Events that were given up, and are kept',
      registers,
    }),
  }
}

function storeMetrics(registers: Registers) {
  return {
    storeCommitSeconds: new Histogram({
      name: 'sternpost_store_commit_seconds',
      help: 'Time of one group commit',
      buckets: SHORT_BUCKETS,
      registers,
    }),
    storeBatchSize: new Histogram({
      name: 'sternpost_store_batch_size',
      help: 'Verbs that shared one commit',
      buckets: BATCH_BUCKETS,
      registers,
    }),
    storeMessagesPerCommit: new Histogram({
      name: 'sternpost_store_messages_per_commit',
      help: 'Accepted messages that shared one commit',
      buckets: BATCH_BUCKETS,
      registers,
    }),
    walBytes: new Gauge({ name: 'sternpost_sqlite_wal_bytes', help: 'Size of the write-ahead log', registers }),
    walMaxBytes: new Gauge({
      name: 'sternpost_sqlite_wal_max_bytes',
      help: 'storage.wal_max: above it a checkpoint is forced',
      registers,
    }),
    databaseBytes: new Gauge({ name: 'sternpost_database_bytes', help: 'Size of the database file', registers }),
    diskFreeBytes: new Gauge({
      name: 'sternpost_disk_free_bytes',
      help: 'Space on the disk of the database that is free for us',
      registers,
    }),
    diskMinFreeBytes: new Gauge({
      name: 'sternpost_disk_min_free_bytes',
      help: 'storage.min_free_accept: below it nothing new is accepted',
      registers,
    }),
    backupLastSuccess: new Gauge({
      name: 'sternpost_backup_last_success_timestamp_seconds',
      help: 'When the newest whole backup was made',
      registers,
    }),
  }
}

function hostMetrics(registers: Registers) {
  return {
    configurationReloads: new Gauge({
      name: 'sternpost_config_last_reload_success',
      help: '1: the last reload took the files over; 0: it refused them',
      registers,
    }),
    healthCheckStatus: new Gauge({
      name: 'sternpost_health_check_status',
      help: 'The worst result of a check: 0 ok, 1 warning, 2 failure',
      labelNames: ['check'],
      registers,
    }),
    certificateExpiry: new Gauge({
      name: 'sternpost_tls_certificate_expiry_timestamp_seconds',
      help: 'When a certificate of our listeners ends',
      labelNames: ['certificate'],
      registers,
    }),
  }
}
