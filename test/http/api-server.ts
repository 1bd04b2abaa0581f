/**
 * The HTTP interface on loopback, before real features or such as a test hands over.
 */
import type { Test } from 'tap'
import { createLogger } from '../../src/base/logger.ts'
import type { HttpFeatures } from '../../src/http/exchange/features.ts'
import type { HttpSettings } from '../../src/http/make-server.ts'
import type { HttpListener } from '../../src/http/open-listener.ts'
import { createHttpServers, type HttpServers, type HttpServersOptions } from '../../src/http/server.ts'
import type { Caller, SendRequest } from '../../src/messages/accept/send-request.ts'
import type { CreateKeyRequest } from '../../src/senders/api-key.ts'
import type { RegisterEndpointRequest } from '../../src/webhooks/endpoints.ts'
import { realFeatures, type FeatureOptions, type KeyName, type TestFeatures } from './api-features.ts'
import { post } from './api-client.ts'

export { ask, get, post, rawConnection } from './api-client.ts'
export type { Asked, Got, RawConnection } from './api-client.ts'
export { keyNamed, shareStore } from './api-features.ts'
export type { KeyName } from './api-features.ts'

export interface ApiServer extends Omit<TestFeatures, 'log'> {
  port: number
  servers: HttpServers
  /** Lines of the log of the interface, parsed. */
  log: Record<string, unknown>[]
  /** What was handed on to the features. */
  seen: Seen
}

interface Seen {
  sends: { request: SendRequest; caller: Caller }[]
  /** Clients that showed a key. */
  addresses: string[]
  keys: CreateKeyRequest[]
  webhooks: RegisterEndpointRequest[]
}

export interface ApiServerOptions extends FeatureOptions {
  /** In place of the real ones. */
  features?: Partial<HttpFeatures>
  http?: Partial<HttpSettings['http']>
  extraHandlers?: HttpServersOptions['extraHandlers']
  testMode?: boolean
  publicUrl?: string
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

export const TLS_SETTINGS: HttpSettings['tls'] = { certificates: [], acme: null, min_version: 'TLSv1.2', ca_file: null }

export async function startApi(t: Test, options: ApiServerOptions = {}): Promise<ApiServer> {
  const log: ApiServer['log'] = []
  const logger = createLogger({ level: 'debug', write: (line) => void log.push(JSON.parse(line)) })
  const { features, ...real } = await realFeatures(t, { ...options, logger })
  const seen: Seen = { sends: [], addresses: [], keys: [], webhooks: [] }
  const servers = createHttpServers({
    features: { ...observed(features, seen), ...options.features },
    settings: {
      http: { ...HTTP_SETTINGS, ...options.http },
      console: { enabled: true, session: 43_200_000 },
      operator: { email: null, webhook: null },
      public_url: options.publicUrl ?? 'https://mail.example.net',
      tls: options.tls ?? TLS_SETTINGS,
      api: real.api,
    },
    clock: real.clock,
    logger,
    metrics: real.metrics,
    thread: real.thread,
    acmeWebroot: () => options.http?.acme_webroot ?? null,
    testMode: options.testMode ?? false,
    extraHandlers: options.extraHandlers ?? [],
  })
  t.teardown(() => servers.stop())
  const listener = { address: '127.0.0.1', port: 0, tls: false, serve: ['api'], ...options.listener }
  const [port = 0] = await servers.start([listener], options.adminSocket ?? null)
  return { ...real, features, port, servers, log, seen }
}

function observed(features: HttpFeatures, seen: Seen): HttpFeatures {
  const { acceptMessage, apiKeys, webhookEndpoints } = features
  return {
    ...features,
    acceptMessage(request, caller, idempotent) {
      // The memory of its attachments is given away.
      seen.sends.push({ request: structuredClone(request), caller })
      return acceptMessage(request, caller, idempotent)
    },
    apiKeys: {
      ...apiKeys,
      create(request) {
        seen.keys.push(request)
        return apiKeys.create(request)
      },
      authenticate(key, address) {
        seen.addresses.push(address)
        return apiKeys.authenticate(key, address)
      },
    },
    webhookEndpoints: {
      ...webhookEndpoints,
      register(request) {
        seen.webhooks.push(request)
        return webhookEndpoints.register(request)
      },
    },
  }
}

export const VALID_SEND = {
  to: 'ada@example.net',
  from: 'Acme <orders@acme.com>',
  subject: 'Order',
  html: '<p>Hi</p>',
  text: 'Hi',
}

/** The id of a message that was accepted from this key. */
export async function sendOne(port: number, fields: object = {}, key: KeyName = 'admin'): Promise<string> {
  const { status, text, json } = await post(port, '/v1/email/send', { ...VALID_SEND, ...fields }, key)
  if (status !== 200) throw new Error(`not accepted: ${text}`)
  return json.message_id ?? ''
}
