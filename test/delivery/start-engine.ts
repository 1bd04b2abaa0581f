/**
 * The delivery engine on a real store, a real DNS server and real sockets: everything but HTTP and webhooks.
 */
import { generateKeyPairSync, randomBytes, type KeyObject } from 'node:crypto'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { HOUR, systemClock, type Clock } from '../../src/base/clock.ts'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics, type Metrics } from '../../src/base/metrics.ts'
import { createLiveConfiguration, type ReplaceableConfiguration } from '../../src/config/live-configuration.ts'
import { loadConfiguration } from '../../src/config/load-configuration.ts'
import { createDispatcher, type Dispatcher } from '../../src/delivery/dispatcher.ts'
import { createFindRoute } from '../../src/delivery/route/route-message.ts'
import { startWorker } from '../../src/delivery/thread-settings.ts'
import { createTlsMemory, createTlsResults } from '../../src/delivery/route/tls/tls-results.ts'
import { createTlsPolicies } from '../../src/delivery/route/tls/tls-policy.ts'
import { createEgress, type Egress } from '../../src/egress/egress.ts'
import { createShaping } from '../../src/egress/shaping/create-shaping.ts'
import type { Shaping } from '../../src/egress/shaping/shaping.ts'
import type { Warmup } from '../../src/egress/moves/warmup.ts'
import type { StoredContent, Stream } from '../../src/mail/message.ts'
import { createDnsResolver } from '../../src/network/dns-resolver.ts'
import { canBind } from '../../src/network/local-addresses.ts'
import { createMailHosts } from '../../src/network/mail-hosts.ts'
import { openStore } from '../../src/store/open/open-store.ts'
import type { MessageView } from '../../src/store/records/lookup-records.ts'
import type { DkimAlgorithm, DkimKeyRecord, DomainRecord } from '../../src/store/records/sender-records.ts'
import type { Store } from '../../src/store/store.ts'
import type { ManualClock } from '../support/manual-clock.ts'
import { startZone, type Zone, type ZoneServer } from '../support/zone.ts'
import { until } from '../support/until.ts'

export interface Engine {
  store: Store
  dispatcher: Dispatcher
  egress: Egress
  warmup: Warmup
  shaping: Shaping
  live: ReplaceableConfiguration
  metrics: Metrics
  zone: ZoneServer
  log: Record<string, unknown>[]
  fatal: Error[]
  folder: string
  /** As the process does at SIGTERM; at the end of the test it is done anyway. */
  close(): Promise<void>
  /** How often `onEvents` was called. */
  eventCalls(): number
  accept(recipient: string, options?: AcceptOptions): Promise<string[]>
  message(id: string | undefined): Promise<MessageView>
  untilState(id: string | undefined, state: MessageView['state']): Promise<MessageView>
  /** As `until`, and lets what is due at this very moment of a manual clock happen. */
  until<Value>(what: string, look: () => Value | Promise<Value>): Promise<Exclude<Value, undefined | null | false>>
  /** `email.*` events but the attempts. */
  events(id: string | undefined): Promise<{ kind: string; data: Record<string, unknown> }[]>
}

export interface AcceptOptions {
  lifetime?: number
  count?: number
  /** Over a plain html mail. */
  content?: Partial<StoredContent>
  isCaptured?: boolean
  /** The sending domain, where it is not the one of the engine. */
  domain?: string
  stream?: Stream
  sendAt?: number
  /** The dispatcher is not told of it. */
  isUntold?: boolean
}

export interface EngineOptions {
  port: number
  /** Where the capture server listens; nowhere when not given. */
  capturePort?: number
  clock?: Clock | ManualClock
  zone?: Zone
  overrides?: Record<string, unknown>
  timeouts?: Record<string, string>
  ips?: Record<string, unknown>[]
  providers?: Record<string, unknown>
  /** Of the one pool, beside its IPs. */
  pool?: Record<string, unknown>
  /** Further pools. */
  pools?: Record<string, unknown>
  warmup?: Record<string, unknown>
  /** Further sending domains. */
  domains?: string[]
  /** Of an engine before, whose queue this one takes over; without it a new one, removed at the end. */
  folder?: string
  /** What stands between the engine and its store. */
  watchStore?: (store: Store) => Store
  /** False while nothing may start. */
  mayDeliver?: () => boolean
  hasOthers?: () => boolean
  /** A port that no check would let pass, to make a delivery thread throw where nobody expects it. */
  impossiblePort?: number
}

const POOL_IPS = [{ address: '127.0.0.11', hostname: 'mta1.sternpost.test', warmed: true }]
/** Long enough for a busy machine: a test that waits for one sets its own. */
const TIMEOUTS = {
  connect: '30s',
  banner: '30s',
  ehlo: '30s',
  starttls: '30s',
  mail: '30s',
  rcpt: '30s',
  data: '30s',
  final_dot: '30s',
  quit: '10s',
}
const RULES = [
  { id: 'spam', match: 'this is spam', category: 'spam_content', example: '554 5.7.1 this is spam' },
  {
    id: 'tls',
    match: 'must issue a STARTTLS',
    category: 'tls',
    example: '530 5.7.0 Must issue a STARTTLS command first',
  },
  { id: 'blocklist', match: 'blocked using', category: 'ip_block', example: '554 5.7.1 blocked using a list' },
  {
    id: 'unavailable',
    match: 'mailbox unavailable',
    category: 'invalid_recipient',
    suppress: 'second',
    example: '550 mailbox unavailable',
  },
]
const SENDING_DOMAIN = 'acme.test'
/** Nobody listens there. */
const UNUSED_PORT = 9
/** The last 32 bytes of an Ed25519 SubjectPublicKeyInfo are the key itself (RFC 8410 §4). */
const RAW_KEY_BYTES = 32
const rsaPair = generateKeyPairSync('rsa', { modulusLength: 2048 })
const ed25519Pair = generateKeyPairSync('ed25519')

/** What the sending domain publishes, by name. */
export const DKIM_RECORDS: Record<string, string> = {
  [`s1._domainkey.${SENDING_DOMAIN}`]: `v=DKIM1; k=rsa; p=${spkiOf(rsaPair).toString('base64')}`,
  [`e1._domainkey.${SENDING_DOMAIN}`]: `v=DKIM1; k=ed25519; p=${spkiOf(ed25519Pair).subarray(-RAW_KEY_BYTES).toString('base64')}`,
}

export async function startEngine(t: Test, options: EngineOptions): Promise<Engine> {
  const { clock = systemClock, port } = options
  const folder = options.folder ?? mkdtempSync(join(tmpdir(), 'sternpost-delivery-'))
  const masterKey = readKey(folder) ?? randomBytes(32)
  writeFiles(folder, { ...options, masterKey })
  const loaded = loadConfiguration({
    folder,
    shippedFolder: folder,
    offline: true,
    overrides: {
      'delivery.timeouts': { ...TIMEOUTS, ...options.timeouts },
      'delivery.retry_jitter': 0,
      'delivery.threads': 1,
      ...options.overrides,
    },
  })
  const delivery = { ...loaded.server.delivery, port: options.impossiblePort ?? port }
  const configuration = { ...loaded, server: { ...loaded.server, delivery } }
  const log: Record<string, unknown>[] = []
  const logger = createLogger({ level: 'debug', write: (line) => void log.push(JSON.parse(line)) })
  const metrics = createMetrics()
  const storeLocation = {
    engine: 'sqlite' as const,
    folder: join(folder, 'data'),
    pageCacheBytes: 2 ** 20,
    walMaxBytes: 2 ** 26,
    commitLingerMilliseconds: 1,
    commitMostRows: 1_000,
  }
  const fatal: Error[] = []
  const onDeath = (reason: Error): void => void fatal.push(reason)
  const opened = await openStore({ location: storeLocation, logger, metrics, onDeath })
  const store = options.watchStore?.(opened) ?? opened
  if (options.folder === undefined) await addSendingDomains(store, masterKey, options.domains ?? [])
  const { epoch } = await store.beginEpoch(clock.now(), clock.now() + configuration.server.delivery.uncertain_retry)
  const zone = await startZone({
    'dest.test': { MX: ['10 mx.dest.test'] },
    'mx.dest.test': { A: ['127.0.0.2'] },
    ...options.zone,
  })
  const live = createLiveConfiguration(configuration)
  const { egress, warmup } = createEgress({
    configuration: live,
    store,
    clock,
    canBind,
    logger,
    lookups: null,
    backlogOf: (pool) => dispatcher.backlogOf(pool),
  })
  const shaping = createShaping({
    clock,
    logger,
    store,
    settings: live.current,
    signals: {
      onBlock: (block) => egress.noteBlock(block),
      onIpSuspension: (ip, until, reason) => void egress.suspend(ip, until, reason, 'shaping'),
      onIpUnreachable: (ip, reason) => egress.disable(ip, reason),
      onLaneSuspension: () => {},
    },
  })
  await egress.start()
  await shaping.start()
  const mailHosts = createMailHosts({
    resolver: createDnsResolver({ servers: [zone.server], timeoutMilliseconds: 10_000, tries: 1 }),
    allowPrivateAddresses: true,
    ownAddresses: () => [],
    mostAddresses: 20,
  })
  const tlsPolicies = createTlsPolicies({
    validating: null,
    sts: { policyFor: async () => null },
    settings: live.current,
  })
  const tlsMemory = createTlsMemory({ store, clock, settings: live.current, logger })
  const tlsResults = createTlsResults({ store, policies: tlsPolicies, memory: tlsMemory, clock, logger })
  let eventCalls = 0
  const dispatcher: Dispatcher = createDispatcher({
    store,
    clock,
    logger,
    metrics,
    egress,
    shaping,
    epoch,
    storeLocation,
    masterKey,
    configuration: live,
    startWorker,
    findRoute: createFindRoute({ mailHosts, tlsPolicies, settings: live.current, clock }),
    tlsMemory,
    onConnectionTls: tlsResults.noteConnection,
    mayDeliver: options.mayDeliver ?? (() => true),
    ...(options.hasOthers === undefined ? {} : { hasOthers: options.hasOthers }),
    realClock: clock,
    captureAddress: { address: '127.0.0.1', port: options.capturePort ?? UNUSED_PORT },
    trackingUrl: null,
    onEvents: () => void eventCalls++,
    onFatal: onDeath,
  })
  let isStopped = false
  const stop = async (...times: Parameters<typeof dispatcher.stop>): Promise<void> => {
    if (!isStopped) await dispatcher.stop(...times)
    isStopped = true
  }
  let closing: Promise<void> | undefined
  const closeAll = async (): Promise<void> => {
    await stop(0, 0)
    await tlsResults.stop()
    await shaping.stop()
    await egress.stop()
    await store.close()
    await zone.close()
  }
  const close = (): Promise<void> => (closing ??= closeAll())
  t.teardown(async () => {
    await close()
    rmSync(folder, { recursive: true, force: true })
  })
  await dispatcher.start()

  const message = async (id = ''): Promise<MessageView> => {
    const found = await store.lookupMessage(id, clock.now())
    if (found === null) throw new Error(`no message ${id}`)
    return found
  }
  const untilTrue: Engine['until'] = (what, look) =>
    until(what, async () => {
      if (isManual(clock)) await clock.advance(0)
      return look()
    })
  return {
    store,
    egress,
    warmup,
    shaping,
    live,
    metrics,
    zone,
    log,
    fatal,
    folder,
    close,
    message,
    until: untilTrue,
    dispatcher: { ...dispatcher, stop },
    eventCalls: () => eventCalls,
    async accept(recipient, { lifetime = 72 * HOUR, count = 1, isCaptured = false, ...options } = {}) {
      const now = clock.now()
      const messages = Array.from({ length: count }, () => ({
        id: newIdentifier('msg', now),
        to: { name: null, address: recipient },
        recipientDomain: recipient.slice(recipient.indexOf('@') + 1),
        variables: {},
        expiresAt: now + lifetime,
        isCaptured,
      }))
      const accepted = await store.acceptMessages({
        now,
        apiKeyId: null,
        isTest: false,
        pool: 'default',
        messages,
        batch: null,
        domain: options.domain ?? SENDING_DOMAIN,
        stream: options.stream ?? 'transactional',
        sendAt: options.sendAt ?? null,
        retryOf: null,
        idempotency: null,
        content: plainContent(options.content),
      })
      if (accepted.kind === 'accepted' && options.isUntold !== true) dispatcher.noteQueued(accepted.queued)
      return messages.map(({ id }) => id)
    },
    untilState: (id, state) =>
      untilTrue(`message ${id} is ${state}`, async () => {
        const view = await message(id)
        return view.state === state && view
      }),
    async events(id = '') {
      const events = (await store.messageEvents(id)) ?? []
      return events
        .filter(({ kind }) => kind !== 'email.attempted' && kind !== 'email.accepted')
        .map(({ kind, data }) => ({ kind, data }))
    },
  }
}

export function plainContent(change: Partial<StoredContent> = {}): StoredContent {
  return {
    from: { name: 'Acme', address: `news@${SENDING_DOMAIN}` },
    replyTo: [],
    subject: 'Hello',
    html: '<p>Hello</p>',
    text: null,
    attachments: [],
    hasVariables: false,
    addressees: null,
    headers: [],
    tags: {},
    metadata: {},
    tracking: { opens: false, clicks: false },
    unsubscribe: null,
    raw: null,
    ...change,
  }
}

function isManual(clock: Clock | ManualClock): clock is ManualClock {
  return 'advance' in clock
}

function readKey(folder: string): Buffer | undefined {
  const file = join(folder, 'master.key')
  return existsSync(file) ? Buffer.from(readFileSync(file, 'utf8'), 'base64') : undefined
}

function writeFiles(folder: string, options: EngineOptions & { masterKey: Buffer }): void {
  writeFileSync(join(folder, 'master.key'), options.masterKey.toString('base64'), { mode: 0o600 })
  const files: Record<string, object> = {
    sternpost: {
      version: 1,
      hostname: 'sternpost.test',
      data_dir: join(folder, 'data'),
      secrets: { master_key: { file: join(folder, 'master.key') } },
      listen: { http: [], submission: [], inbound: [], metrics: null },
      delivery: { port: options.port, allow_private_addresses: true },
    },
    pools: {
      version: 1,
      default_pool: 'default',
      pools: { default: { ips: options.ips ?? POOL_IPS, ...options.pool }, ...options.pools },
    },
    warmup: { version: 1, curves: { standard: { stages: [50, 100, 200] } }, ...options.warmup },
    providers: { version: 1, default: {}, providers: {}, replies: [], ...options.providers },
    bounces: { version: 1, rules: RULES },
  }
  for (const [name, content] of Object.entries(files)) {
    writeFileSync(join(folder, `${name}.yaml`), JSON.stringify(content))
  }
}

async function addSendingDomains(store: Store, masterKey: Buffer, others: readonly string[]): Promise<void> {
  for (const name of [SENDING_DOMAIN, ...others]) await addSendingDomain(store, masterKey, name)
}

async function addSendingDomain(store: Store, masterKey: Buffer, name: string): Promise<void> {
  const keyOf = (pair: KeyPair, selector: string, algorithm: DkimAlgorithm): DkimKeyRecord => {
    const pem = pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString()
    const sealedPrivateKey = createKeyRing(masterKey).seal(pem, `dkim ${name} ${selector}`)
    return {
      selector,
      algorithm,
      role: 'active',
      publicKey: '',
      sealedPrivateKey,
      createdAt: 0,
      seenAt: 0,
      retireAt: null,
    }
  }
  const keys = [keyOf(ed25519Pair, 'e1', 'ed25519-sha256'), keyOf(rsaPair, 's1', 'rsa-sha256')]
  await store.addDomain(verifiedDomain(name, keys), null)
}

export function verifiedDomain(name: string, keys: DkimKeyRecord[]): DomainRecord {
  return {
    name,
    state: 'verified',
    keys,
    returnPath: `bounces.${name}`,
    trackingDomain: `t.${name}`,
    tracking: { opens: true, clicks: true },
    allowSubdomains: false,
    ipPool: null,
    createdAt: 0,
    verifiedAt: 0,
    lastCheckedAt: 0,
    nextCheckAt: null,
    failingSince: null,
    failedChecks: 0,
    degradedAt: null,
    checks: [],
  }
}

interface KeyPair {
  privateKey: KeyObject
  publicKey: KeyObject
}

function spkiOf({ publicKey }: KeyPair): Buffer {
  return publicKey.export({ type: 'spki', format: 'der' })
}
