/**
 * Everything behind the HTTP interface, real: a store in a folder of its own, with the sending domains acme.com and
 * other.com verified and a key for each kind of caller. Only the clock is moved by hand, and nothing is delivered.
 */
import { createHash, createSecretKey } from 'node:crypto'
import type { Test } from 'tap'
import type { FilePair } from '../../src/base/service/server-certificates.ts'
import { createKeyRing, MASTER_KEY_BYTES, type KeyRing } from '../../src/base/key-ring.ts'
import { createLogger, type Logger } from '../../src/base/logger.ts'
import { createMetrics, type Metrics } from '../../src/base/metrics.ts'
import type { Configuration } from '../../src/config/load-configuration.ts'
import type { ServerSettings } from '../../src/config/settings/server-settings.ts'
import type { HttpFeatures } from '../../src/http/exchange/features.ts'
import { createClassifier } from '../../src/mail/reply/classify-reply.ts'
import { createBodyThread, type BodyThread } from '../../src/http/exchange/body-thread.ts'
import type { AcceptanceOptions } from '../../src/messages/accept/accept-mail.ts'
import { createAcceptBatch, createAcceptMessage } from '../../src/messages/accept/accept-message.ts'
import { createAcceptanceLog } from '../../src/messages/accept/acceptance-log.ts'
import { createMessageActions } from '../../src/messages/lookup/act-on-message.ts'
import { createIdempotencyKeys } from '../../src/messages/accept/idempotency.ts'
import { createMessageContent } from '../../src/messages/lookup/message-content.ts'
import { createMessageLookup } from '../../src/messages/lookup/lookup-message.ts'
import { createMailRefusal } from '../../src/messages/accept/mail-refusal.ts'
import { createRequestReader } from '../../src/messages/accept/request-reader.ts'
import { createPreviewMessage } from '../../src/messages/accept/preview-message.ts'
import { createSendingRate } from '../../src/messages/accept/sending-rate.ts'
import { createStatistics } from '../../src/messages/statistics/statistics.ts'
import { createSuppressions } from '../../src/messages/suppressions/suppressions.ts'
import { createGuardedRequest } from '../../src/network/guarded-request.ts'
import { createLogins } from '../../src/operations/logins.ts'
import { createPasskeys } from '../../src/operations/passkeys.ts'
import { dkimSealContext } from '../../src/senders/records/dkim-keys.ts'
import { createApiKeys } from '../../src/senders/api-key.ts'
import type { Store } from '../../src/store/store.ts'
import { createWebhookDeliveries } from '../../src/webhooks/deliveries.ts'
import { createWebhookEndpoints } from '../../src/webhooks/endpoints.ts'
import { createEventStreams, type EventStreams } from '../../src/webhooks/event-stream.ts'
import { createTryEndpoint } from '../../src/webhooks/try-endpoint.ts'
import { senderParts, testStore, type SenderParts } from '../senders/sender-parts.ts'
import { apiKey, dkimKey, domainRecord } from '../store/store-samples.ts'
import { manualClock } from '../support/manual-clock.ts'
import { administrationWorld, type AdministrationWorld } from './administration-parts.ts'

export type KeyName =
  'send' | 'read' | 'stats' | 'ips' | 'domains' | 'webhooks' | 'suppressions' | 'admin' | 'limited' | 'test'

interface TestKey {
  scopes: string[]
  mode?: 'live' | 'test'
  domains?: string[]
  allowedIps?: string[]
}

const KEYS: Record<KeyName, TestKey> = {
  send: { scopes: ['send'] },
  read: { scopes: ['messages:read'] },
  stats: { scopes: ['stats'] },
  ips: { scopes: ['ips'] },
  domains: { scopes: ['domains'] },
  webhooks: { scopes: ['webhooks'] },
  suppressions: { scopes: ['suppressions'] },
  admin: { scopes: ['admin'] },
  limited: { scopes: ['admin'], domains: ['acme.com'], allowedIps: ['127.0.0.0/8'] },
  test: { scopes: ['admin'], mode: 'test' },
}
const KEY_NAMES = Object.keys(KEYS) as KeyName[]

/** The same in every test. */
export function keyNamed(name: KeyName): string {
  return `sk_${KEYS[name].mode ?? 'live'}_${name.padEnd(36, '0')}9f3a`
}

/** The part `api` of sternpost.yaml: limits that no test meets by chance. */
export const API_SETTINGS: ServerSettings['api'] = {
  requests: null,
  requests_burst: 1,
  recipients: null,
  recipients_burst: 1,
  batch_recipients: 1_000,
  queue_max: 1_000_000,
  counts_max: { domains: 1_000, webhooks: 50, keys: 20 },
}

export interface FeatureOptions {
  api?: Partial<ServerSettings['api']>
  /** What every verb of the store rejects with, while it is not null. */
  storeFailure?: () => Error | null
  /** What a reload reads in place of files. */
  load?: () => Configuration
  /** Where backups may go. */
  backupFolders?: readonly string[]
  /** Of the event streams; left out: 200. */
  heartbeatMilliseconds?: number
  /** Of the doors. */
  certificateFiles?: Pick<FilePair, 'cert_file' | 'cert'>[]
  /** A store of its own, where the others of the file share one. */
  ownStore?: boolean
  /** Which addresses this machine has; left out: all. */
  canBind?: (address: string) => Promise<boolean>
  /** Whether the disk has space for more mail; left out: it has. */
  hasSpace?: () => boolean
  /** Left out: nothing is logged. */
  logger?: Logger | undefined
}

export interface TestFeatures extends SenderParts, AdministrationWorld {
  features: HttpFeatures
  eventStreams: EventStreams
  metrics: Metrics
  thread: BodyThread
  api: ServerSettings['api']
}

let shared: Promise<Store> | null = null

/** All tests of this file use one store: for those that do not count what is in it. Opening one takes a while. */
export function shareStore(t: Test): void {
  shared ??= filledStore(t)
}

async function filledStore(t: Test): Promise<Store> {
  const store = await testStore(t)
  await fill(store, createKeyRing(Buffer.alloc(MASTER_KEY_BYTES, 7)), manualClock().now())
  return store
}

export async function realFeatures(t: Test, options: FeatureOptions = {}): Promise<TestFeatures> {
  const real = await ((options.ownStore === true ? null : shared) ?? filledStore(t))
  const store = options.storeFailure === undefined ? real : failingStore(real, options.storeFailure)
  const parts = await senderParts(t, { store, ...(options.canBind === undefined ? {} : { canBind: options.canBind }) })
  const { clock, domains, egress, keyRing, warmup } = parts
  const api = { ...API_SETTINGS, ...options.api }
  const metrics = createMetrics()
  const rate = createSendingRate({ clock, settings: api })
  const thread = createBodyThread({ logger: createLogger({ level: 'silent' }) })
  t.teardown(() => thread.stop())
  const reader = createRequestReader(thread.work)
  const given = { store, clock, reader, domains, egress, metrics, rate, logger: options.logger }
  const acceptance = acceptanceOptions(given, api)
  const guardedRequest = createGuardedRequest({ allowPrivateAddresses: true, allowHttp: false })
  t.teardown(() => guardedRequest.close())
  const logger = createLogger({ level: 'silent' })
  const { load, backupFolders = [], certificateFiles = [], heartbeatMilliseconds = 200 } = options
  const world = administrationWorld(parts, { metrics, load, backupFolders, certificateFiles })
  const eventStreams = createEventStreams({ store, clock, heartbeatMilliseconds })
  const apiKeys = createApiKeys({ store, clock, mostKeys: api.counts_max.keys, logger })
  const logins = createLogins({ store, apiKeys, idle: 43_200_000, realClock: clock, logger })
  const features: HttpFeatures = {
    acceptMessage: createAcceptMessage(acceptance),
    acceptBatch: createAcceptBatch(acceptance),
    previewMessage: createPreviewMessage({ ...acceptance, renderingOf: async () => RENDERING }),
    messages: {
      ...createMessageLookup({
        store,
        clock,
        domains,
        classify: createClassifier([]),
        whyWaiting: () => undefined,
        whereIs: async () => undefined,
        longestStageMilliseconds: 0,
      }),
      ...createMessageActions(acceptance),
      content: createMessageContent({ store, clock, reader, renderingOf: async () => RENDERING }),
    },
    suppressions: createSuppressions({ store, clock, metrics }),
    statistics: createStatistics({ store, clock }),
    idempotency: createIdempotencyKeys({ store, clock }),
    sendingRate: rate,
    mailRefusal: createMailRefusal({
      store,
      clock,
      diskProblem: () => (options.hasSpace?.() === false ? 'the disk is nearly full' : null),
      mostQueued: api.queue_max,
    }),
    domains,
    warmup,
    now: () => clock.now(),
    administration: world.administration,
    apiKeys,
    // The API's listener serves no tracked links.
    engagement: { open() {}, click: async () => ({ kind: 'unknown' }) },
    unsubscribing: { isUnsubscribeToken: () => false, unsubscribe: async () => false },
    webhookEndpoints: createWebhookEndpoints({
      store,
      clock,
      keyRing,
      guardedRequest,
      mostEndpoints: api.counts_max.webhooks,
    }),
    webhookDeliveries: createWebhookDeliveries({ store, clock, onDue: () => {}, onReplayed: eventStreams.tell }),
    tryWebhook: createTryEndpoint({
      store,
      clock,
      keyRing,
      guardedRequest,
      version: '0.0.0',
      onTold: eventStreams.tell,
    }),
    eventStreams,
    logins,
    passkeys: createPasskeys({ store, realClock: clock, keyRing, openFor: logins.openFor }),
    consoleUrl: 'http://127.0.0.1:8025/console/',
    health: async () => ({
      status: 'ok',
      queue_depth: 12,
      oldest_due_seconds: 3,
      db: 'ok',
      mail_in: 'ok',
      smtp_out: 'ok',
    }),
  }
  return { ...parts, ...world, features, eventStreams, metrics, thread, api }
}

function failingStore(real: Store, failure: () => Error | null): Store {
  return new Proxy(real, {
    get(target, name, receiver) {
      const error = failure()
      // Whether the store is there is known without asking it.
      return error === null || name === 'problem' ? Reflect.get(target, name, receiver) : () => Promise.reject(error)
    },
  })
}

type AcceptanceParts = Pick<
  AcceptanceOptions,
  'store' | 'clock' | 'reader' | 'domains' | 'egress' | 'metrics' | 'rate'
> &
  Pick<FeatureOptions, 'logger'>

function acceptanceOptions(parts: AcceptanceParts, api: ServerSettings['api']): AcceptanceOptions {
  const lifetime = 72 * 3_600_000
  return {
    ...parts,
    settings: {
      api,
      delivery: { allow_private_addresses: false, streams: { transactional: { lifetime }, bulk: { lifetime } } },
      headers: { reference: null },
    },
    captures: 'test-and-simulated',
    testSendingDomain: null,
    logAccepted: createAcceptanceLog({
      logger: (parts.logger ?? createLogger({ level: 'silent' })).child({ part: 'messages' }),
      recipients: () => 'full',
    }),
    onQueued: () => {},
    onEvents: () => {},
  }
}

/** Of every token that is made here. */
export const TOKEN_KEY = createSecretKey(Buffer.alloc(32, 1))
const RENDERING = {
  returnPath: 'bounces.acme.com',
  trackingBaseUrl: 'https://t.acme.com',
  settings: {
    keys: { complaint: TOKEN_KEY, open: TOKEN_KEY, click: TOKEN_KEY, unsubscribe: TOKEN_KEY },
    referenceHeader: null,
    senderId: 'sternpost',
    cfbl: false,
  },
}

async function fill(store: Store, keyRing: KeyRing, now: number): Promise<void> {
  const keys = KEY_NAMES.map((name) => {
    const { scopes, mode = 'live', domains = [], allowedIps = [] } = KEYS[name]
    const record = apiKey({
      name,
      mode,
      scopes,
      domains,
      allowedIps,
      prefix: `sk_${mode}_`,
      last4: '9f3a',
      createdAt: now,
    })
    return store.addApiKey(record, createHash('sha256').update(keyNamed(name)).digest(), null)
  })
  const domains = ['acme.com', 'other.com'].map((name) => {
    const sealed = dkimKey({ sealedPrivateKey: keyRing.seal('a key', dkimSealContext(name, dkimKey().selector)) })
    return store.addDomain(
      domainRecord({ name, state: 'verified', verifiedAt: now, nextCheckAt: null, keys: [sealed] }),
      null,
    )
  })
  await Promise.all([...keys, ...domains])
}
