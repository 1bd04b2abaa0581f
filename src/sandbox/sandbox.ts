/**
 * The outside world in small, for the composition root: a capture server for all mail, DNS answers as required, and
 * the `/dev` routes. What it needs of the server comes as functions; the server knows nothing of it.
 *
 *   prepareDataFolder -> createSandbox -> start -> (the server starts) -> firstStart -> … -> endWaits -> stop
 *
 * `endWaits` comes before the HTTP server stops, because requests of `/dev` may be waiting for mail.
 */
import { join } from 'node:path'
import type { Middleware } from 'koa'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { GIVEN_EVENT_KINDS } from '../mail/event.ts'
import type { Resolver } from '../network/resolver.ts'
import { createCaptureServer } from './capture-server.ts'
import { keepApiKey, readApiKey } from './data-folder.ts'
import { createDevRoutes } from './dev-routes.ts'
import { hookName, HOOKS_PATH, openHookSecrets } from './hook-secrets.ts'
import { createInbox } from './inbox.ts'
import type { DkimVerdict } from './inbox.ts'
import { createSandboxResolver } from './sandbox-resolver.ts'
import type { PublishedRecord } from './published-record.ts'
import { createWebhookInspector } from './webhook-inspector.ts'

export interface SandboxOptions {
  /** `http://127.0.0.1:<port>`. */
  baseUrl: string
  /** Absolute and prepared. */
  dataFolder: string
  /** Captured messages kept. */
  keep: number
  clock: Clock
  logger: Logger
  /** What the DNS has to hold for our sending domains. */
  publishedRecords: (name: string) => Promise<PublishedRecord[]>
  verifyDkim: (bytes: Buffer) => Promise<DkimVerdict>
}

export interface Sandbox {
  /** Starts the capture server; resolves with its port: 1026, or a free one. */
  start(): Promise<number>
  resolver: Resolver
  /** Asked before the API. */
  middleware: Middleware
  /** Makes what a sandbox begins with, as far as it is not there yet. Throws when a step is refused. */
  firstStart(features: SandboxFeatures): Promise<{ key: string }>
  /** The same registration; the inspector learns the secrets of endpoints that point at it. */
  notingSecrets<Request extends WebhookRequest, Answer extends WebhookAnswer>(
    register: (request: Request) => Promise<Answer>,
  ): (request: Request) => Promise<Answer>
  endWaits(): void
  stop(): Promise<void>
}

/** Functions of the running server. */
export interface SandboxFeatures {
  addDomain(name: string): Promise<unknown>
  verifyDomain(name: string): Promise<{ verified: boolean }>
  createKey(request: { name: string; mode: 'test'; scopes: string[] }): Promise<{ key: string }>
  registerWebhook(request: WebhookRequest & { events: string[]; description: string }): Promise<WebhookAnswer>
}

interface WebhookRequest {
  url: string
  secret: string | null
}

interface WebhookAnswer {
  /** Only when it was generated. */
  secret: string | null
}

export const SANDBOX_DOMAIN = 'sandbox.test'
export const INSPECTOR_NAME = 'inspector'
/** operations.md 2: the capture server's port when it is free. */
const CAPTURE_PORT = 1026
const CAPTURE_HOST_NAME = 'mx.capture.posthorn.test'

export function createSandbox(options: SandboxOptions): Sandbox {
  const { baseUrl, dataFolder, keep, clock, verifyDkim, publishedRecords } = options
  const logger = options.logger.child({ part: 'sandbox' })
  const secrets = openHookSecrets(join(dataFolder, 'hooks.json'))
  const inbox = createInbox({ keep, verifyDkim, logger })
  const inspector = createWebhookInspector({ clock, secretsFor: secrets.secretsFor })
  const capture = createCaptureServer({ hostName: CAPTURE_HOST_NAME, clock, logger, onMail: inbox.receive })

  const registerInspector = async (features: SandboxFeatures): Promise<void> => {
    const url = `${baseUrl}${HOOKS_PATH}${INSPECTOR_NAME}`
    // Another port than last time is another URL: it needs an endpoint of its own.
    if (secrets.hasEndpoint(url)) return
    const { secret } = await features.registerWebhook({
      url, secret: null, events: [...GIVEN_EVENT_KINDS], description: 'Webhook inspector of the sandbox',
    })
    if (secret === null) throw new Error('the webhook inspector got no secret')
    // It may have been noted already, when the registration is one of `notingSecrets`.
    if (!secrets.hasEndpoint(url)) secrets.note(url, secret)
  }

  return {
    start: () => capture.start(CAPTURE_PORT),
    resolver: createSandboxResolver({ captureHostName: CAPTURE_HOST_NAME, publishedRecords }),
    middleware: createDevRoutes({ baseUrl, inbox, inspector }),
    async firstStart(features) {
      await features.addDomain(SANDBOX_DOMAIN)
      const { verified } = await features.verifyDomain(SANDBOX_DOMAIN)
      if (!verified) throw new Error(`the domain ${SANDBOX_DOMAIN} could not be verified`)
      await registerInspector(features)
      const kept = readApiKey(dataFolder)
      if (kept !== undefined) return { key: kept }
      const { key } = await features.createKey({ name: 'sandbox', mode: 'test', scopes: ['admin'] })
      keepApiKey(dataFolder, key)
      return { key }
    },
    notingSecrets: (register) => async (request) => {
      const answer = await register(request)
      const secret = request.secret ?? answer.secret
      if (secret !== null && hookName(request.url) !== undefined) secrets.note(request.url, secret)
      return answer
    },
    endWaits() {
      inbox.close()
      inspector.close()
    },
    stop: capture.stop,
  }
}
