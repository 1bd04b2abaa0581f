/**
 * The registry and every metric name, in one place (operations.md 8). Labels have few values: never a recipient, a
 * message id or a URL. Recording never throws and never blocks.
 */
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'

export type Metrics = ReturnType<typeof createMetrics>

const MILLISECOND_BUCKETS = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
const BATCH_BUCKETS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]

export function createMetrics() {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })
  return {
    registry,
    messagesAccepted: new Counter({
      name: 'posthorn_messages_accepted_total', help: 'Messages committed to the queue',
      labelNames: ['source'], registers,
    }),
    messagesRejected: new Counter({
      name: 'posthorn_messages_rejected_total', help: 'Requests refused, by error code',
      labelNames: ['code'], registers,
    }),
    deliveries: new Counter({
      name: 'posthorn_deliveries_total', help: 'Outcomes of delivery attempts',
      labelNames: ['result', 'pool', 'ip', 'provider'], registers,
    }),
    submissionSessions: new Counter({
      name: 'posthorn_smtp_submission_sessions_total', help: 'Logins by SMTP: accepted, refused, or limited',
      labelNames: ['result'], registers,
    }),
    inboundMessages: new Counter({
      name: 'posthorn_inbound_messages_total', help: 'Mails that came in for us, by what they are',
      labelNames: ['kind'], registers,
    }),
    reportsIgnored: new Counter({
      name: 'posthorn_reports_ignored_total', help: 'Reports that changed nothing, and why',
      labelNames: ['why'], registers,
    }),
    bounces: new Counter({
      name: 'posthorn_bounces_total', help: 'Messages that ended without delivery, or bounced after it',
      labelNames: ['type', 'provider'], registers,
    }),
    complaints: new Counter({
      name: 'posthorn_complaints_total', help: 'Messages that were reported as spam',
      labelNames: ['provider'], registers,
    }),
    leasesRecovered: new Counter({
      name: 'posthorn_leases_recovered_total', help: 'Messages taken back from a process or thread that died',
      registers,
    }),
    queueMessages: new Gauge({
      name: 'posthorn_queue_messages', help: 'Messages that are not final', labelNames: ['state'], registers,
    }),
    queueWaiting: new Gauge({
      name: 'posthorn_queue_waiting_messages', help: 'Messages that are held back, by what holds them',
      labelNames: ['reason'], registers,
    }),
    webhookDeliveries: new Counter({
      name: 'posthorn_webhook_deliveries_total', help: 'Webhook attempts by result', labelNames: ['result'], registers,
    }),
    opens: new Counter({
      name: 'posthorn_opens_total', help: 'Fetches of pixels, by people or machines', labelNames: ['machine'], registers,
    }),
    clicks: new Counter({
      name: 'posthorn_clicks_total', help: 'Followed links, by people or machines', labelNames: ['machine'], registers,
    }),
    engagementDropped: new Counter({
      name: 'posthorn_engagement_dropped_total', help: 'Opens and clicks that were not kept: too many waited', registers,
    }),
    configurationReloads: new Gauge({
      name: 'posthorn_config_last_reload_success', help: '1: the last reload took the files over; 0: it refused them',
      registers,
    }),
    httpRequestSeconds: new Histogram({
      name: 'posthorn_http_request_seconds', help: 'Time to answer a request',
      labelNames: ['route', 'method', 'status'], buckets: MILLISECOND_BUCKETS, registers,
    }),
    storeCommitSeconds: new Histogram({
      name: 'posthorn_store_commit_seconds', help: 'Time of one group commit', buckets: MILLISECOND_BUCKETS, registers,
    }),
    storeBatchSize: new Histogram({
      name: 'posthorn_store_batch_size', help: 'Verbs that shared one commit', buckets: BATCH_BUCKETS, registers,
    }),
    storeMessagesPerCommit: new Histogram({
      name: 'posthorn_store_messages_per_commit', help: 'Accepted messages that shared one commit',
      buckets: BATCH_BUCKETS, registers,
    }),
  }
}
