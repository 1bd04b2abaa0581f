/**
 * A webhook engine on a real store and real HTTP, with a clock moved by hand.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import { newIdentifier } from '../../src/base/identifier.ts'
import { createKeyRing } from '../../src/base/key-ring.ts'
import { createLogger } from '../../src/base/logger.ts'
import type { StoredContent } from '../../src/mail/message.ts'
import type { Metrics } from '../../src/base/metrics.ts'
import {
  createGuardedRequest,
  type GuardedAnswer,
  type GuardedPost,
  type GuardedRequest,
  type GuardedRequestOptions,
} from '../../src/network/guarded-request.ts'
import type { Store } from '../../src/store/store.ts'
import type { ReplayedEvent } from '../../src/store/records/webhook-records.ts'
import { createWebhookDeliveries, type WebhookDeliveries } from '../../src/webhooks/deliveries.ts'
import { createWebhookEndpoints, type WebhookEndpoints } from '../../src/webhooks/endpoints.ts'
import { sealSecret } from '../../src/webhooks/endpoint-secret.ts'
import { createTryEndpoint, type TryEndpoint } from '../../src/webhooks/try-endpoint.ts'
import { createWebhookEngine, type WebhookEngine } from '../../src/webhooks/webhook-engine.ts'
import { locationIn, openTestStore } from '../store/sqlite-support.ts'
import {
  acceptOne,
  claim,
  delivered,
  LIFETIME,
  NOW,
  outcomeRecord,
  sampleContent,
  webhookEndpoint,
} from '../store/store-samples.ts'
import { manualClock, type ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

export interface AttemptLine {
  endpoint_id: string
  event_id: string
  delivery_id: string
  attempt: number
  status: number | null
  ms: number
  outcome: string
  next_at: number | null
  error?: string
  msg: string
  level: string
}

export interface EngineHarness {
  clock: ManualClock
  /** Of what takes real time, whatever `clock` says. */
  realClock: ManualClock
  store: Store
  metrics: Metrics
  engine: WebhookEngine
  epoch: number
  /** What was asked of the guarded request. */
  posts: GuardedPost[]
  /** One per attempt, in order. */
  attempts: AttemptLine[]
  /** Every line of the log. */
  lines: Record<string, unknown>[]
  endpoints: WebhookEndpoints
  deliveries: WebhookDeliveries
  tryEndpoint: TryEndpoint
  /** Events that were told again, by their kind. */
  toldAgain: string[]
  addEndpoint(url: string, secret?: string, include?: string[]): Promise<string>
  /** As one that was registered before its URL was wrong. */
  addUnchecked(url: string): Promise<string>
  /** Messages that are delivered: each brings one event to every endpoint. */
  deliver(count?: number, content?: Partial<StoredContent>): Promise<string[]>
  /** Lets the engine work, without any time passing on its clock, until the condition holds. */
  pump(what: string, look: () => boolean): Promise<void>
  /** No delivery waits any more, neither due nor leased. */
  finish(): Promise<void>
  /** Long enough, in turns and not in time, that whatever is due would have happened: for what must not happen. */
  settle(): Promise<void>
}

export interface HarnessOptions {
  /** The 10 seconds of the specification are real time: a hanging endpoint is given up sooner. */
  timeoutMilliseconds?: number
  /** In place of a post of the engine; undefined: it goes out. */
  post?: (request: GuardedPost) => Promise<GuardedAnswer> | undefined
  /** Stands between engine and store. */
  wrapStore?: (store: Store) => Store
  concurrency?: { total: number; per_endpoint: number }
  disableAfter?: number
  /** In place of what lets tests reach loopback. */
  guard?: Partial<GuardedRequestOptions>
}

export const SECRET = 'a-secret-of-the-test'
const TURNS = 20

/** Everything is closed when the test is over, also when it failed. */
export async function startEngine(t: Test, options: HarnessOptions = {}): Promise<EngineHarness> {
  const folder = mkdtempSync(join(tmpdir(), 'sternpost-webhooks-'))
  const clock = manualClock(NOW)
  const realClock = manualClock(NOW)
  const { store, metrics } = await openTestStore(locationIn(folder))
  const { epoch } = await store.beginEpoch(clock.now(), clock.now())
  const keyRing = createKeyRing(Buffer.alloc(32, 5))
  const posts: GuardedPost[] = []
  const guardedRequest = recordingRequest(posts, options)
  const lines: Record<string, unknown>[] = []
  const logger = createLogger({
    level: 'info',
    write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>),
  })
  const engine = createWebhookEngine({
    store: options.wrapStore?.(store) ?? store,
    clock,
    realClock,
    keyRing,
    logger,
    metrics,
    guardedRequest: { ...guardedRequest, post: (request) => options.post?.(request) ?? guardedRequest.post(request) },
    settings: {
      concurrency: options.concurrency ?? { total: 100, per_endpoint: 4 },
      disable_after: options.disableAfter ?? null,
    },
    version: '0.0.0',
    speed: () => 1,
  })
  const endpoints = createWebhookEndpoints({ store, clock, keyRing, guardedRequest, onEnabled: () => engine.wake() })
  const toldAgain: string[] = []
  const onReplayed = (events: readonly ReplayedEvent[]): void => void toldAgain.push(...events.map(({ kind }) => kind))
  const deliveries = createWebhookDeliveries({ store, clock, onDue: () => engine.wake(), onReplayed })
  const tryEndpoint = createTryEndpoint({ store, clock, keyRing, guardedRequest, version: '0.0.0', onTold: onReplayed })
  const pump: EngineHarness['pump'] = async (what, look) => {
    await until(what, async () => {
      await clock.advance(0)
      return look()
    })
  }
  engine.start(epoch)
  t.teardown(async () => {
    await engine.stop()
    await guardedRequest.close()
    await store.close()
    rmSync(folder, { recursive: true })
  })
  return {
    clock,
    realClock,
    store,
    metrics,
    engine,
    epoch,
    posts,
    lines,
    pump,
    endpoints,
    deliveries,
    tryEndpoint,
    toldAgain,
    get attempts() {
      return lines.filter((line) => 'outcome' in line) as unknown as AttemptLine[]
    },
    addEndpoint: async (url, secret = SECRET, include = []) =>
      (await endpoints.register({ url, secret, include, events: null, description: null })).endpoint.id,
    async addUnchecked(url) {
      const id = newIdentifier('wh', clock.now())
      await store.addWebhookEndpoint(webhookEndpoint({ id, url, sealedSecret: sealSecret(keyRing, id, SECRET) }))
      return id
    },
    async deliver(count = 1, content = {}) {
      const messageIds: string[] = []
      for (let index = 0; index < count; index += 1) {
        const now = clock.now()
        const changes = { now, content: { ...sampleContent, ...content } }
        messageIds.push(await acceptOne(store, changes, { expiresAt: now + LIFETIME }))
      }
      const messages = await claim(store, epoch, clock.now(), count)
      const outcomes = messages.map((message) => outcomeRecord(message, delivered))
      await store.recordOutcomes({ epoch, now: clock.now(), outcomes })
      engine.wake()
      return messageIds
    },
    finish: async () =>
      void (await until('no delivery waits', async () => (await store.earliestWebhookDueAt()) === null)),
    async settle() {
      for (let turn = 0; turn < TURNS; turn += 1) {
        await clock.advance(0)
        await store.tick()
      }
    },
  }
}

function recordingRequest(posts: GuardedPost[], options: HarnessOptions): GuardedRequest {
  const { timeoutMilliseconds, guard } = options
  const real = createGuardedRequest({ allowPrivateAddresses: true, allowHttp: true, ...guard })
  return {
    ...real,
    post(request) {
      posts.push(request)
      return real.post({ ...request, timeoutMilliseconds: timeoutMilliseconds ?? request.timeoutMilliseconds })
    },
  }
}
