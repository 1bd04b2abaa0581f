/**
 * The HTTP interface on loopback with small features of its own, and clients that show what is on the wire.
 */
import { Agent, request } from 'node:http'
import type { IncomingHttpHeaders } from 'node:http'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { ServiceError } from '../../src/base/errors.ts'
import { createLogger } from '../../src/base/logger.ts'
import { createMetrics } from '../../src/base/metrics.ts'
import type { Metrics } from '../../src/base/metrics.ts'
import type { HttpFeatures } from '../../src/http/features.ts'
import type { HttpSettings } from '../../src/http/make-server.ts'
import type { HttpListener } from '../../src/http/open-listener.ts'
import { createHttpServers } from '../../src/http/server.ts'
import type { HttpServers, HttpServersOptions } from '../../src/http/server.ts'
import type { Caller, SendRequest } from '../../src/messages/send-request.ts'
import { manualClock } from '../support/manual-clock.ts'

export type KeyName = 'send' | 'read' | 'domains' | 'webhooks' | 'admin' | 'limited' | 'test'

interface TestKey {
  scopes: string[]
  mode?: 'live' | 'test'
  domains?: string[]
  allowedIps?: string[]
}

/** A key's name is the key. */
export const KEYS: Record<KeyName, TestKey> = {
  send: { scopes: ['send'] },
  read: { scopes: ['messages:read'] },
  domains: { scopes: ['domains'] },
  webhooks: { scopes: ['webhooks'] },
  admin: { scopes: ['admin'] },
  limited: { scopes: ['admin'], domains: ['acme.com'], allowedIps: ['127.0.0.0/8'] },
  test: { scopes: ['admin'], mode: 'test' },
}

export const ACCEPTED_AT = Date.UTC(2026, 10, 21, 12)
export const MESSAGE_ID = 'msg_01kapg6t3vq8x2m5r7w9y4c6de'

export interface ApiServer {
  port: number
  servers: HttpServers
  metrics: Metrics
  /** Lines of the log, parsed. */
  log: Record<string, unknown>[]
  accepted: { request: SendRequest; caller: Caller }[]
  addresses: string[]
  created: { domain: unknown[]; key: unknown[]; webhook: unknown[] }
}

export interface ApiServerOptions {
  features?: Partial<HttpFeatures>
  http?: Partial<HttpSettings['http']>
  extraHandlers?: HttpServersOptions['extraHandlers']
  testMode?: boolean
  listener?: Partial<HttpListener>
  tls?: HttpSettings['tls']
  adminSocket?: string
}

export const HTTP_SETTINGS: HttpSettings['http'] = {
  trusted_proxies: [],
  timeouts: { headers: 10_000, request: 120_000 },
  connections: { total: 10_000, per_address: 256 },
  max_body: 40 * 1024 * 1024,
  max_body_other: 256 * 1024,
  acme_webroot: null,
}

export const TLS_SETTINGS: HttpSettings['tls'] = { certificates: [], min_version: 'TLSv1.2', ca_file: null }

/** The part of a test that cleans up. */
export interface Closable {
  teardown(action: () => Promise<unknown>): void
}

export async function startApi(t: Closable, options: ApiServerOptions = {}): Promise<ApiServer> {
  const log: ApiServer['log'] = []
  const metrics = createMetrics()
  const seen: Seen = { accepted: [], addresses: [], created: { domain: [], key: [], webhook: [] } }
  const servers = createHttpServers({
    features: { ...testFeatures(seen), ...options.features },
    settings: { http: { ...HTTP_SETTINGS, ...options.http }, tls: options.tls ?? TLS_SETTINGS },
    clock: manualClock(ACCEPTED_AT),
    logger: createLogger({ level: 'debug', write: (line) => void log.push(JSON.parse(line)) }),
    metrics,
    testMode: options.testMode ?? false,
    extraHandlers: options.extraHandlers ?? [],
  })
  t.teardown(() => servers.stop())
  const listener = { address: '127.0.0.1', port: 0, tls: false, serve: ['api'], ...options.listener }
  const [port = 0] = await servers.start([listener], options.adminSocket ?? null)
  return { port, servers, metrics, log, ...seen }
}

type Seen = Pick<ApiServer, 'accepted' | 'addresses' | 'created'>

function testFeatures({ accepted, addresses, created }: Seen): HttpFeatures {
  return {
    async acceptMessage(request, caller) {
      accepted.push({ request, caller })
      const details = request.wrongTypes.join('; ')
      if (request.to === undefined) throw new ServiceError('invalid_recipient', details)
      if (details !== '') throw new ServiceError('invalid_request', details)
      return { messageId: MESSAGE_ID, acceptedAt: ACCEPTED_AT }
    },
    async lookupMessage(id) {
      if (id !== MESSAGE_ID) throw new ServiceError('not_found', `message ${id}`)
      return testMessage()
    },
    async messageEvents(id) {
      if (id !== MESSAGE_ID) throw new ServiceError('not_found', `message ${id}`)
      return [TEST_EVENT]
    },
    domains: testDomains(created.domain),
    apiKeys: {
      async create(request) {
        created.key.push(request)
        return { key: 'sk_live_secret9f3a', record: { ...keyRecord('admin'), ...request } }
      },
      async authenticate(key, remoteAddress) {
        addresses.push(remoteAddress)
        if (!isKeyName(key)) throw new ServiceError('unauthorized', 'no such key ending in 9f3a')
        return keyRecord(key)
      },
    },
    webhookEndpoints: {
      async register(request) {
        created.webhook.push(request)
        const secret = request.secret === null ? 'whsec_generated' : null
        const warnings = request.secret === 'short' ? ['secret: short'] : []
        return { endpoint: testEndpoint(request.url), secret, warnings }
      },
    },
    health: async () => ({ status: 'ok', queue_depth: 12, oldest_due_seconds: 3, db: 'ok', smtp_out: 'ok' }),
  }
}

/** Every name but unknown.com is a domain; each change is kept. */
function testDomains(changes: unknown[]): HttpFeatures['domains'] {
  const known = (name: string) => {
    if (name === 'unknown.com') throw new ServiceError('not_found', `domain ${name}`)
    return testDomain(name)
  }
  return {
    async add(request) {
      changes.push(request)
      return { record: testDomain(request.name), isNew: request.name !== 'known.com' }
    },
    verify: async (name) => ({ record: known(name), isRepeated: name === 'again.com' }),
    find: async (name) => (name === 'unknown.com' ? null : testDomain(name)),
    async list(query) {
      changes.push(query)
      return { domains: [testDomain('acme.com')], next: query.after === null ? 'cursor' : null }
    },
    async update(name, change) {
      changes.push(change)
      return known(name)
    },
    queuedMessages: async (name) => (known(name).domain === name ? 12 : 0),
    async remove(name, options) {
      const { domain } = known(name)
      changes.push(options)
      return { domain, deleted: true, queued_messages: 12 }
    },
    async rotateDkim(name) {
      if (name === 'turning.com') throw new ServiceError('conflict', 'a rotation is under way')
      return known(name)
    },
    zoneFile: async (name) => `; ${known(name).domain}\n`,
  }
}

function isKeyName(text: string): text is KeyName {
  return Object.hasOwn(KEYS, text)
}

function keyRecord(name: KeyName) {
  const { scopes, mode = 'live', domains = [], allowedIps = [] } = KEYS[name]
  return {
    id: 'key_01kapg6t3vq8x2m5r7w9y4c6d0', name, mode, scopes, domains, allowedIps,
    prefix: 'sk_live_', last4: '9f3a', createdAt: ACCEPTED_AT, expiresAt: null, revokedAt: null,
  }
}

export const TEST_EVENT = { id: 'evt_1', event: 'email.accepted', timestamp: 1, data: {} }

function testMessage() {
  return {
    message_id: MESSAGE_ID, batch_id: null, state: 'delivered' as const, recipient: 'ada@example.net',
    from: 'orders@other.com', subject: 'Order', stream: 'transactional' as const, tags: {}, metadata: {}, isp: null,
    ip: null, ip_pool: 'default', created_at: 1, send_at: null, expires_at: 2, next_attempt_at: null, delivered_at: 1,
    bounced_at: null, complained_at: null, bounce: null, opens: 0, clicks: 0, machine_opens: 0, machine_clicks: 0,
    uncertain: false, retry_of: null, attempts: [], events: [TEST_EVENT],
  }
}

export function testDomain(domain: string) {
  return {
    domain, status: 'pending' as const, verified: false, can_send: false, created_at: 1, verified_at: null,
    last_checked_at: null, next_check_at: null, return_path: `bounces.${domain}`,
    tracking: { opens: true, clicks: true, domain: `t.${domain}`, tls: 'pending' as const },
    ip_pool: 'default', allow_subdomains: false, records: [],
  }
}

function testEndpoint(url: string) {
  return {
    id: 'wh_01kapg6t3vq8x2m5r7w9y4c6dm', url, events: ['email.delivered'], include: [], description: null,
    status: 'enabled' as const, disabled_reason: null, secret_set: true as const, created_at: 1, updated_at: 1,
    last_success_at: null, last_failure_at: null, consecutive_failures: 0, pending: 0, dead_letters: 0,
  }
}

export interface Asked {
  method?: string
  path: string
  /** null: no Authorization header. */
  key?: KeyName | null
  headers?: Record<string, string>
  body?: string | Uint8Array
  socketPath?: string
  agent?: Agent
}

export interface Got {
  status: number
  headers: IncomingHttpHeaders
  text: string
  json: {
    success?: unknown
    data?: Record<string, unknown>
    error?: { code: string; message: string; details: string }
  }
}

/** One request on a connection of its own. */
export function ask(port: number, asked: Asked): Promise<Got> {
  const { method = 'POST', path, key = 'admin', headers = {}, body, socketPath, agent = new Agent() } = asked
  const target = socketPath === undefined ? { host: '127.0.0.1', port } : { socketPath }
  const allHeaders = key === null ? headers : { Authorization: `Bearer ${key}`, ...headers }
  return new Promise((resolve, reject) => {
    const outgoing = request({ ...target, method, path, headers: allHeaders, agent }, (incoming) => {
      const pieces: Buffer[] = []
      incoming.on('data', (piece: Buffer) => pieces.push(piece))
      incoming.on('end', () => {
        const text = Buffer.concat(pieces).toString('utf8')
        const isJson = incoming.headers['content-type']?.startsWith('application/json') === true && text !== ''
        const json = isJson ? JSON.parse(text) : {}
        resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, text, json })
      })
      incoming.on('error', reject)
    })
    outgoing.on('error', reject)
    outgoing.end(body)
  })
}

/** A request with a JSON body. */
export function post(port: number, path: string, body: unknown, key: KeyName = 'admin'): Promise<Got> {
  return ask(port, { path, key, body: JSON.stringify(body), headers: { 'Content-Type': 'application/json' } })
}

export function get(port: number, path: string, key: KeyName | null = 'admin'): Promise<Got> {
  return ask(port, { method: 'GET', path, key })
}

export interface RawConnection {
  socket: Socket
  write(text: string | Uint8Array): boolean
  /** All that came so far. */
  text(): string
  /** The server sends nothing more. */
  isClosed(): boolean
}

export async function rawConnection(port: number): Promise<RawConnection> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true })
  let text = ''
  let isClosed = false
  socket.on('data', (piece) => (text += piece.toString('latin1')))
  socket.on('error', () => {})
  for (const event of ['end', 'close']) socket.on(event, () => (isClosed = true))
  await new Promise((resolve) => socket.once('connect', resolve))
  return { socket, write: (piece) => socket.write(piece), text: () => text, isClosed: () => isClosed }
}

export const VALID_SEND = {
  to: 'ada@example.net', from: 'Acme <orders@acme.com>', subject: 'Order', html: '<p>Hi</p>', text: 'Hi',
}
