/**
 * The outside world in small: what it needs of the server comes as functions; the server knows nothing of it.
 *
 *   prepareDataFolder -> createSandbox -> start -> (the server starts) -> firstStart -> … -> endWaits -> stop
 *
 * `endWaits` comes before the HTTP server stops, because requests of `/dev` may be waiting for mail.
 */
import type { KeyObject } from 'node:crypto'
import { join } from 'node:path'
import { ServiceError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { GIVEN_EVENT_KINDS } from '../mail/event.ts'
import type { AdjustableClock } from './adjustable-clock.ts'
import { CAPTURE_HOST_NAME, createCaptureServer } from '../capture/capture-server.ts'
import { CAPTURE_PORT, SANDBOX_ADDRESS } from './sandbox-settings.ts'
import { keepApiKey, readApiKey } from './data-folder.ts'
import { createDevRoutes } from './dev-routes.ts'
import { hookName, HOOKS_PATH, openHookSecrets, type HookSecrets } from './hook-secrets.ts'
import { createInbox, type DkimVerdict } from './inbox.ts'
import { createCaptureReplies } from '../capture/replies.ts'
import { createSandboxResolver, type SandboxResolverOptions } from './sandbox-resolver.ts'
import { createVisit } from '../capture/visit.ts'
import { createWebhookInspector } from './webhook-inspector.ts'

interface SandboxOptions extends Omit<SandboxResolverOptions, 'captureHostName'> {
  /** `http://127.0.0.1:<port>`. */
  baseUrl: string
  /** Where the server will take bounces and complaints, on loopback. */
  inboundPort: number
  /** Absolute and prepared. */
  dataFolder: string
  /** Captured messages kept. */
  keep: number
  clock: AdjustableClock
  /** The clock was changed by hand. */
  onClockChange: () => void
  logger: Logger
  verifyDkim: (bytes: Buffer) => Promise<DkimVerdict>
  /** Behind the tokens in envelope senders. */
  bounceKey: () => Promise<KeyObject>
}

export type Sandbox = ReturnType<typeof createSandbox>

/** Functions of the running server. */
interface SandboxFeatures {
  addDomain(name: string): Promise<unknown>
  verifyDomain(name: string): Promise<{ verified: boolean }>
  createKey(request: { name: string; mode: 'test'; scopes: string[] }): Promise<{ key: string }>
  /** True too when nobody has it; one that its user limited, or that expired, is kept. */
  isKeyRevoked(key: string): Promise<boolean>
  registerWebhook(request: WebhookRequest & { events: string[]; description: string }): Promise<WebhookAnswer>
  /** Left out while endpoints cannot be changed: another port then gets an endpoint of its own. Throws `not_found`. */
  updateWebhook?: (id: string, change: { url: string }) => Promise<unknown>
  /** Does nothing where pools.yaml has no such IP. */
  startWarmup(ip: string): Promise<void>
}

interface WebhookRequest {
  url: string
  secret: string | null
}

/** Verbs of the running server that set or change a secret, or where it signs. */
interface ObservedEndpoints {
  register(request: WebhookRequest): Promise<WebhookAnswer>
  update(id: string, change: { url?: string }): Promise<unknown>
  rotateSecret(id: string, request: { secret: string | null }): Promise<{ secret: string | null }>
}

interface WebhookAnswer {
  endpoint: { id: string }
  /** Only when it was generated. */
  secret: string | null
}

export const SANDBOX_DOMAIN = 'sandbox.test'
export const INSPECTOR_NAME = 'inspector'
/** An IP of the shipped pools.yaml whose warmup has begun, so that it can be seen. */
const WARMING_IP = '127.0.0.12'

export function createSandbox(options: SandboxOptions) {
  const { baseUrl, dataFolder, keep, clock, inboundPort, onClockChange, verifyDkim, bounceKey } = options
  const logger = options.logger.child({ part: 'sandbox' })
  const secrets = openHookSecrets(join(dataFolder, 'hooks.json'))
  const inbox = createInbox({ keep, verifyDkim, bounceKey, logger })
  const inspector = createWebhookInspector({ clock, secretsFor: secrets.secretsFor })
  const replies = createCaptureReplies()
  const capture = createCaptureServer({
    clock,
    logger,
    replies,
    inboundAddress: () => ({ address: SANDBOX_ADDRESS, port: inboundPort }),
    visit: createVisit(() => ({ address: SANDBOX_ADDRESS, port: Number(new URL(baseUrl).port), isTls: false })),
    onMail: inbox.receive,
  })

  const registerInspector = async (features: SandboxFeatures): Promise<void> => {
    const url = `${baseUrl}${HOOKS_PATH}${INSPECTOR_NAME}`
    const known = secrets.endpointsOf(INSPECTOR_NAME)
    if (known.some((endpoint) => endpoint.url === url)) return
    // The port is another one than last time.
    for (const { id } of known) {
      if (await moveEndpoint(features, id, url)) return secrets.move(id, url)
      secrets.forget(id)
    }
    const description = 'Webhook inspector of the sandbox'
    const asked = { url, secret: null, events: [...GIVEN_EVENT_KINDS], description }
    const { endpoint, secret } = await features.registerWebhook(asked)
    if (secret === null) throw new Error('the webhook inspector got no secret')
    secrets.note({ id: endpoint.id, url, secret })
  }

  return {
    /** Starts the capture server; resolves with its port: 1026, or a free one. */
    start: () => capture.start(CAPTURE_PORT),
    resolver: createSandboxResolver({ ...options, captureHostName: CAPTURE_HOST_NAME }),
    /** Asked before the API. */
    middleware: createDevRoutes({ baseUrl, inbox, inspector, clock, replies, onClockChange }),
    /** Makes what a sandbox begins with, as far as it is not there yet. Throws when a step is refused. */
    async firstStart(features: SandboxFeatures): Promise<{ key: string }> {
      await features.addDomain(SANDBOX_DOMAIN)
      const { verified } = await features.verifyDomain(SANDBOX_DOMAIN)
      if (!verified) throw new Error(`the domain ${SANDBOX_DOMAIN} could not be verified`)
      await registerInspector(features)
      const kept = readApiKey(dataFolder)
      if (kept !== undefined && !(await features.isKeyRevoked(kept))) return { key: kept }
      const { key } = await features.createKey({ name: 'sandbox', mode: 'test', scopes: ['admin'] })
      keepApiKey(dataFolder, key)
      if (kept === undefined) await features.startWarmup(WARMING_IP)
      return { key }
    },
    /** The same verbs; the inspector learns the secrets of endpoints that point at it. */
    notingSecrets: <Endpoints extends ObservedEndpoints>(endpoints: Endpoints): Endpoints =>
      observed(endpoints, secrets),
    endWaits(): void {
      inbox.close()
      inspector.close()
    },
    stop: capture.stop,
  }
}

function observed<Endpoints extends ObservedEndpoints>(endpoints: Endpoints, secrets: HookSecrets): Endpoints {
  return {
    ...endpoints,
    async register(request: WebhookRequest) {
      const answer = await endpoints.register(request)
      const { url } = request
      const secret = request.secret ?? answer.secret
      if (secret !== null && hookName(url) !== undefined) secrets.note({ id: answer.endpoint.id, url, secret })
      return answer
    },
    async update(id: string, change: { url?: string }) {
      const answer = await endpoints.update(id, change)
      if (change.url !== undefined) secrets.move(id, change.url)
      return answer
    },
    async rotateSecret(id: string, request: { secret: string | null }) {
      const answer = await endpoints.rotateSecret(id, request)
      const secret = request.secret ?? answer.secret
      if (secret !== null) secrets.rotate(id, secret)
      return answer
    },
  }
}

/** False when endpoints cannot be changed, or when this one is gone. */
async function moveEndpoint({ updateWebhook }: SandboxFeatures, id: string, url: string): Promise<boolean> {
  if (updateWebhook === undefined) return false
  try {
    await updateWebhook(id, { url })
    return true
  } catch (thrown) {
    if (thrown instanceof ServiceError && thrown.code === 'not_found') return false
    throw thrown
  }
}
