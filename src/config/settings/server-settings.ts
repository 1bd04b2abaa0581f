/**
 * `sternpost.yaml`: every key of the server with its type and default, as the program uses it (milliseconds, bytes).
 * What null derives from other keys is in `resolve-server-settings.ts`, what each key is for in
 * `config/sternpost.yaml`.
 */
import { z } from 'zod'
import { DAY, HOUR, MINUTE, SECOND } from '../../base/clock.ts'
import { cronSchedule, boolean, choice, count, duration, integer, rate, rateOrUnlimited, size } from './field-types.ts'
import { databaseUrl } from './database-url.ts'
import { deliverySection } from './delivery-settings.ts'
import { field, readName, section } from './reading.ts'
import {
  absolutePath,
  acmeDirectory,
  baseUrl,
  hostName,
  listenAddress,
  mailAddress,
  network,
  port,
  secret,
  serverAddress,
  socketPath,
  webUrl,
} from './network-field-types.ts'

const KiB = 2 ** 10
const MiB = 2 ** 20
const MINUTE_RATE = { count: 5, per_milliseconds: MINUTE }
/** What a door of the HTTP server may serve. */
const SERVE = [
  'api', // the service itself
  'tracking', // opens, clicks, unsubscribing
  'console', // the web console
  'acme', // answers to certificate authorities: of tls.acme, and those in http.acme_webroot
  'redirect', // everything else goes to https
] as const

const readNodeId = readName('node id', /^[a-z0-9-]{1,63}$/, 'only a-z, 0-9 and hyphens')
// A header name of RFC 5322 §2.2 that a mail program would write, as in X-Sternpost-Ref.
const readHeaderName = readName('header name', /^[A-Za-z][A-Za-z0-9-]{0,60}$/, 'only letters, digits and hyphens')

export const ADMIN_SOCKET = '/run/sternpost/admin.sock'

export const serverSchema = section({
  version: choice([1]),
  hostname: hostName,
  node_id: field(readNodeId).nullable().default(null),
  public_url: baseUrl.nullable().default(null),
  data_dir: absolutePath.default('/var/lib/sternpost'),
  secrets: section({ master_key: secret.default({ credential: 'master.key' }) }).prefault({}),
  operator: section({ email: mailAddress.nullable().default(null), webhook: webUrl.nullable().default(null) }).prefault(
    {},
  ),
  listen: section({
    http: z
      .array(
        section({ address: listenAddress, port, tls: boolean.default(false), serve: z.array(choice(SERVE)).min(1) }),
      )
      .default([
        { address: '*', port: 443, tls: true, serve: ['api', 'tracking', 'console'] },
        { address: '*', port: 80, tls: false, serve: ['tracking', 'acme', 'redirect'] },
      ]),
    submission: z
      .array(section({ address: listenAddress, port, tls: choice(['starttls', 'implicit', 'none']) }))
      .default([
        { address: '*', port: 587, tls: 'starttls' },
        { address: '*', port: 465, tls: 'implicit' },
      ]),
    inbound: z.array(section({ address: listenAddress, port })).default([{ address: '*', port: 25 }]),
    metrics: section({ address: listenAddress, port }).nullable().default({ address: '127.0.0.1', port: 9464 }),
    admin_socket: socketPath.default(ADMIN_SOCKET),
  }).prefault({}),
  http: section({
    trusted_proxies: z.array(network).default([]),
    timeouts: section({ headers: duration().default(10 * SECOND), request: duration().default(120 * SECOND) }).prefault(
      {},
    ),
    connections: section({ total: count.default(10_000), per_address: count.default(256) }).prefault({}),
    max_body: size({ max: 100 * MiB }).default(40 * MiB),
    max_body_other: size({ max: 100 * MiB }).default(256 * KiB),
    acme_webroot: absolutePath.nullable().default(null),
  }).prefault({}),
  tls: section({
    certificates: z.array(section({ cert_file: absolutePath, key_file: absolutePath })).default([]),
    acme: section({
      directory: acmeDirectory,
      fallback: z.array(acmeDirectory).default([]),
      email: mailAddress.nullable().default(null),
      ca_file: absolutePath.nullable().default(null),
      orders_per_hour: integer({ min: 1, max: 100_000 }).default(90),
      keep_key: z.boolean().default(false),
    })
      .nullable()
      .default(null),
    min_version: choice(['TLSv1.2', 'TLSv1.3']).default('TLSv1.2'),
    ca_file: absolutePath.nullable().default(null),
  }).prefault({}),
  dns: section({
    servers: z.array(serverAddress).default([]),
    timeout: duration().default(5 * SECOND),
    tries: integer({ min: 1, max: 10 }).default(2),
    cache: section({
      entries: count.default(20_000),
      min_ttl: duration({ min: 0 }).default(30 * SECOND),
      max_ttl: duration().default(HOUR),
      negative_ttl: duration({ min: 0 }).default(60 * SECOND),
      stale: duration({ min: 0 }).default(HOUR),
    }).prefault({}),
    validating_resolver: serverAddress.nullable().default(null),
  }).prefault({}),
  api: section({
    requests: rateOrUnlimited.default({ count: 200, per_milliseconds: SECOND }),
    requests_burst: count.default(400),
    recipients: rateOrUnlimited.default({ count: 60_000, per_milliseconds: MINUTE }),
    recipients_burst: count.default(10_000),
    batch_recipients: integer({ min: 1, max: 5_000 }).default(1_000),
    queue_max: count.default(5_000_000),
    counts_max: section({
      domains: count.default(1_000),
      webhooks: count.default(50),
      keys: count.default(200),
    }).prefault({}),
  }).prefault({}),
  submission: section({
    limits: section({
      message: size().default(40 * MiB),
      recipients: count.default(100),
      connections: count.default(2_000),
      connections_per_address: count.default(100),
    }).prefault({}),
    auth_failures: rate.default(MINUTE_RATE),
  }).prefault({}),
  inbound: section({
    limits: section({
      message: size().default(50 * MiB),
      kept: size().default(MiB),
      recipients: count.default(100),
      connections: count.default(2_000),
      connections_per_address: count.default(20),
    }).prefault({}),
    token_max_age: duration().default(35 * DAY),
    complaint_address: mailAddress.nullable().default(null),
  }).prefault({}),
  domains: section({
    targets: section({
      return_path: hostName.nullable().default(null),
      spf: hostName.nullable().default(null),
      tracking: hostName.nullable().default(null),
    }).prefault({}),
    dmarc_report_address: mailAddress.nullable().default(null),
    dkim: section({
      bits: choice([2048, 4096]).default(2048),
      ed25519: boolean.default(false),
      platform_domain: hostName.nullable().default(null),
    }).prefault({}),
    recheck_pending: duration().default(5 * MINUTE),
    recheck_verified: duration().default(6 * HOUR),
    degraded_grace: duration().default(72 * HOUR),
  }).prefault({}),
  tracking: section({
    opens: boolean.default(true),
    clicks: boolean.default(true),
    host: hostName.nullable().default(null),
    store_client: boolean.default(false),
  }).prefault({}),
  webhooks: section({
    allow_http: boolean.default(false),
    allow_private_addresses: boolean.default(false),
    concurrency: section({ total: count.default(100), per_endpoint: count.default(4) }).prefault({}),
    dead_letter_retention: duration().default(30 * DAY),
    disable_after: duration()
      .nullable()
      .default(5 * DAY),
  }).prefault({}),
  delivery: deliverySection.prefault({}),
  headers: section({
    reference: field(readHeaderName).nullable().default('X-Sternpost-Ref'),
    cfbl: boolean.default(false),
  }).prefault({}),
  cluster: section({
    ip_hook: absolutePath.nullable().default(null),
    ip_hook_timeout: duration().default(30 * SECOND),
  }).prefault({}),
  storage: section({
    engine: choice(['sqlite', 'postgres']).default('sqlite'),
    url: databaseUrl.nullable().default(null),
    commit: section({ linger: duration({ min: 0, max: 20 }).default(8), rows: count.default(1_000) }).prefault({}),
    page_cache: size().default(8 * MiB),
    wal_max: size().default(64 * MiB),
    min_free_accept: size().default(256 * MiB),
    min_free_deliver: size().default(32 * MiB),
  }).prefault({}),
  retention: section({
    content: duration().default(7 * DAY),
    messages: duration().default(90 * DAY),
    transcripts: duration({ min: 0 }).default(30 * DAY),
    link_targets: duration().default(365 * DAY),
    webhook_deliveries: duration().default(7 * DAY),
    inbound_unmatched: duration().default(7 * DAY),
    statistics: duration().default(400 * DAY),
    audit: duration().default(400 * DAY),
    budget: size().nullable().default(null),
  }).prefault({}),
  backup: section({
    dir: absolutePath.nullable().default(null),
    folders: z.array(absolutePath).default([]),
    schedule: cronSchedule.nullable().default('17 3 * * *'),
    keep: count.default(7),
  }).prefault({}),
  health: section({
    interval: duration().default(HOUR),
    blocklists: z.array(hostName).default(['zen.spamhaus.org', 'bl.spamcop.net', 'b.barracudacentral.org']),
    blocklist_servers: z.array(serverAddress).default([]),
    backup_max_age: duration().default(26 * HOUR),
  }).prefault({}),
  log: section({
    level: choice(['debug', 'info', 'warn', 'error']).default('info'),
    recipients: choice(['full', 'domain', 'hash']).default('full'),
  }).prefault({}),
  metrics: section({ token: secret.nullable().default(null) }).prefault({}),
  console: section({ enabled: boolean.default(true), session: duration().default(12 * HOUR) }).prefault({}),
})

/** As the file says it: null stands for what derives from other keys, secrets are references. */
export type ParsedServerSettings = z.infer<typeof serverSchema>

/** As the rest of the program sees it: every name resolved, every secret read. */
export interface ServerSettings extends Omit<ParsedServerSettings, ResolvedKey> {
  node_id: string
  public_url: string
  secrets: { /** 32 bytes. */ master_key: Buffer }
  inbound: Resolved<'inbound', { complaint_address: string }>
  domains: Resolved<
    'domains',
    { targets: { return_path: string; spf: string; tracking: string }; dmarc_report_address: string }
  >
  tracking: Resolved<'tracking', { host: string }>
  storage: Resolved<'storage', { /** With its password: never shown. */ url: string | null }>
  backup: Resolved<'backup', { dir: string }>
  metrics: { token: string | null }
}

type ResolvedKey =
  'node_id' | 'public_url' | 'secrets' | 'inbound' | 'domains' | 'tracking' | 'storage' | 'backup' | 'metrics'
type Resolved<Key extends keyof ParsedServerSettings, Values> = Omit<ParsedServerSettings[Key], keyof Values> & Values
