/**
 * Takes webhook deliveries that are due to their endpoints.
 *
 * State of a delivery -> next: due -> under way (leased) -> succeeded | due again after a delay | dead letter.
 *
 * - Posts run side by side, at most `concurrency.total` of them and `per_endpoint` to one endpoint, a single one while
 *   nobody answers there. A round claims as many as there are free slots, and the end of any post brings the next
 *   round, at once or together with others: a slow endpoint holds its own slots and nobody else's.
 * - As many as an endpoint answered since the last round it may have beyond its slots: they wait in memory
 *   (`claimed-ahead.ts`) and are posted as slots come free, so that many posts share a round.
 * - The results of posts are recorded together in the next round, in one commit with its claim. While the store can not
 *   record, they are kept and tried again each second, and nothing new is claimed: memory stays bounded.
 * - A delivery is in hand once: when the clock leaps beyond its lease and the store gives it again, it is not posted
 *   beside itself.
 * - A post that does not end is in nobody's hand: after one to two minutes it is let go as a failed attempt, so that it
 *   holds no slot and its delivery is tried again; should its answer come after all, it is ignored.
 * - A process that dies with posts under way leaves their rows leased; the next epoch finds them due. The event is then
 *   sent again, which receivers must expect (http/README.md "Events").
 * - An endpoint that only fails is turned off by the store, when the results of its last dead letter are recorded.
 */
import type { Clock } from '../base/clock.ts'
import { MINUTE, SECOND } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import type { Metrics } from '../base/metrics.ts'
import { createPollLoop } from '../base/poll-loop.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { Store } from '../store/store.ts'
import type { ClaimedWebhookDelivery, WebhookResult } from '../store/records/webhook-records.ts'
import { createClaimedAhead } from './claimed-ahead.ts'
import { createEndpointSlots } from './endpoint-slots.ts'
import { notPosted, postEvent } from './post-event.ts'
import type { PostedEvent, PostEventOptions } from './post-event.ts'
import { createPostsUnderWay } from './posts-under-way.ts'
import type { Post } from './posts-under-way.ts'
import { nextRetryAt } from './retry-schedule.ts'

export interface WebhookEngineOptions extends PostEventOptions {
  store: Store
  clock: Clock
  /** For what takes real time whatever the schedule follows: a post that does not end. */
  realClock: Pick<Clock, 'after'>
  settings: Pick<ServerSettings['webhooks'], 'concurrency' | 'disable_after'>
  /** Seconds of the clock in a real one: a lease is for a post, which takes real time. */
  speed: () => number
  logger: Logger
  metrics: Metrics
}

export interface WebhookEngine {
  /** `epoch` is the fence of this process's claims, from `store.beginEpoch`. */
  start(epoch: number): void
  /** New events may be due. */
  wake(): void
  /** Claims nothing more; posts under way end within their 10 seconds, or are let go, and are recorded. */
  stop(): Promise<void>
}

/** A post ends within 10 s; the rest is for its time in memory and for a store that is slow to record. */
const LEASE = 60 * SECOND
/** Results are recorded when so many have come together, when nothing is under way, or after so many milliseconds. */
const MOST_RESULTS = 64
const LONGEST_UNRECORDED = 20
/** While posts are under way, what comes due meanwhile may be seen so much late. */
const LOOK_AGAIN_AFTER = SECOND
/** Between two looks for posts that do not end: several times what one may take. */
const LOOK_FOR_ORPHANS_EVERY = MINUTE
/** A stop waits no longer for them: twice what a post may take. */
const LONGEST_STOP = 20 * SECOND
const NO_END = 'the post did not end'

export function createWebhookEngine(options: WebhookEngineOptions): WebhookEngine {
  const { store, clock, settings, logger } = options
  const { total, per_endpoint: perEndpoint } = settings.concurrency
  const slots = createEndpointSlots(perEndpoint)
  const ahead = createClaimedAhead()
  const underWay = createPostsUnderWay()
  let results: WebhookResult[] = []
  /** The store has refused results: it is asked for nothing else before it takes them. */
  let isRefused = false
  let isStopping = false
  let roundTimer: NodeJS.Timeout | undefined
  let cancelLook = (): void => {}
  let epoch = 0

  const loop = createPollLoop({
    clock,
    round,
    onError: (thrown) => logger.error({ err: thrown, waiting_results: results.length }, 'webhook round failed'),
  })

  /** Others need what is free: nobody has more than its slots, so each post's end brings the next one at once. */
  const isScarce = (): boolean => underWay.size() > total / 2

  async function round(): Promise<number | null> {
    clearTimeout(roundTimer)
    roundTimer = undefined
    const recording = recordResults()
    if (isRefused) await recording
    for (const endpointId of ahead.endpoints()) postWaiting(endpointId)
    const free = total - underWay.size()
    if (free === 0) {
      await recording
      return null
    }
    const more = isScarce() ? {} : ahead.allowances()
    const limit = free + Object.values(more).reduce((sum, count) => sum + count, 0)
    const now = clock.now()
    const claiming = store.claimWebhooks({
      now,
      epoch,
      leaseUntil: now + LEASE * options.speed(),
      limit,
      perEndpoint,
      busy: ahead.addedTo(slots.taken()),
      ahead: more,
    })
    const [recorded, claimed] = await Promise.allSettled([recording, claiming])
    const deliveries = claimed.status === 'fulfilled' ? claimed.value : []
    for (const delivery of deliveries) if (!isInHand(delivery.id)) ahead.add(delivery)
    for (const endpointId of ahead.endpoints()) postWaiting(endpointId)
    if (claimed.status === 'rejected') throw claimed.reason
    if (recorded.status === 'rejected') throw recorded.reason
    // The end of a post brings the next round, also for what waits for a slot.
    return underWay.size() === 0 ? store.earliestWebhookDueAt() : now + LOOK_AGAIN_AFTER * options.speed()
  }

  /** Posted, not recorded yet. */
  function isInHand(delivery: string): boolean {
    return underWay.has(delivery) || results.some(({ id }) => id === delivery)
  }

  async function recordResults(): Promise<void> {
    const batch = [...results]
    if (batch.length === 0) return
    const disableAfter = settings.disable_after
    try {
      const { disabled } = await store.recordWebhookResults({ epoch, results: batch, disableAfter })
      results = results.slice(batch.length)
      isRefused = false
      for (const endpointId of disabled) logger.warn({ endpoint_id: endpointId }, 'webhook endpoint disabled')
    } catch (thrown) {
      isRefused = true
      throw thrown
    }
  }

  /** As many as its slots allow. */
  function postWaiting(endpointId: string): void {
    while (!isStopping && underWay.size() < total && slots.isFree(endpointId)) {
      const delivery = ahead.take(endpointId)
      if (delivery === undefined) return
      post(delivery)
    }
  }

  function post(delivery: ClaimedWebhookDelivery): void {
    slots.take(delivery.endpointId)
    const begun: Post = { delivery, at: clock.now(), begunAt: performance.now() }
    underWay.begin(begun)
    postEvent(delivery, { now: begun.at }, options)
      .catch((thrown: unknown) => notPosted(errorText(thrown)))
      .then((posted) => finish(begun, posted))
  }

  function finish(begun: Post, posted: PostedEvent): void {
    if (!underWay.end(begun)) return
    const { endpointId } = begun.delivery
    results.push(resultOf(begun, posted, options))
    slots.release(endpointId, posted.status !== null)
    if (posted.status !== null) ahead.noteAnswered(endpointId)
    postWaiting(endpointId)
    if (results.length >= MOST_RESULTS || underWay.size() === 0 || isScarce()) loop.wake()
    else roundTimer ??= setTimeout(loop.wake, LONGEST_UNRECORDED)
  }

  /** The retry schedule takes it from here. */
  function letGo(orphan: Post): void {
    const { delivery, at } = orphan
    options.metrics.orphans.inc({ kind: 'webhook' })
    const fields = {
      endpoint_id: delivery.endpointId,
      event_id: delivery.eventId,
      delivery_id: delivery.id,
      since: new Date(at).toISOString(),
      attempt: delivery.attempts + 1,
    }
    logger.warn(fields, "webhook delivery in nobody's hand")
    finish(orphan, notPosted(NO_END))
  }

  function lookForOrphans(): void {
    for (const orphan of underWay.look()) letGo(orphan)
    // The net for a time that the clock has leapt over.
    loop.wake()
    cancelLook = options.realClock.after(LOOK_FOR_ORPHANS_EVERY, lookForOrphans)
  }

  async function endPosts(): Promise<void> {
    const { promise: over, resolve: giveUp } = Promise.withResolvers<void>()
    const cancel = options.realClock.after(LONGEST_STOP, giveUp)
    await Promise.race([underWay.ended(), over])
    cancel()
    for (const orphan of underWay.all()) letGo(orphan)
  }

  return {
    start(newEpoch) {
      epoch = newEpoch
      loop.start()
      cancelLook = options.realClock.after(LOOK_FOR_ORPHANS_EVERY, lookForOrphans)
    },
    wake: loop.wake,
    async stop() {
      // What waits in memory is due again in the next epoch.
      isStopping = true
      await loop.stop()
      cancelLook()
      await endPosts()
      clearTimeout(roundTimer)
      try {
        await recordResults()
      } catch (thrown) {
        logger.error({ err: thrown, results: results.length }, 'webhook results lost, their events will be sent again')
      }
    },
  }
}

function resultOf({ delivery, at, begunAt }: Post, posted: PostedEvent, options: WebhookEngineOptions): WebhookResult {
  const endedAt = options.clock.now()
  const result: WebhookResult = {
    key: delivery.key,
    id: delivery.id,
    at,
    endedAt,
    // How long the endpoint took is real time, whatever clock the schedule follows.
    durationMilliseconds: Math.round(performance.now() - begunAt),
    status: posted.status,
    error: posted.error,
    answer: posted.answer,
    next: nextStep(delivery, posted, endedAt),
  }
  options.metrics.webhookDeliveries.inc({ result: result.next.kind })
  options.metrics.webhookAttemptSeconds.observe(result.durationMilliseconds / SECOND)
  logAttempt(options.logger, delivery, result)
  return result
}

function nextStep(delivery: ClaimedWebhookDelivery, posted: PostedEvent, endedAt: number): WebhookResult['next'] {
  if (posted.isSuccess) return { kind: 'succeeded' }
  const at = nextRetryAt({ deliveryId: delivery.id, failedAttempts: delivery.attempts + 1, endedAt })
  return at === null ? { kind: 'dead-letter' } : { kind: 'retry', at }
}

function logAttempt(logger: Logger, delivery: ClaimedWebhookDelivery, result: WebhookResult): void {
  const fields = {
    endpoint_id: delivery.endpointId,
    event_id: delivery.eventId,
    delivery_id: delivery.id,
    attempt: delivery.attempts + 1,
    status: result.status,
    ms: result.durationMilliseconds,
    outcome: result.next.kind,
    next_at: result.next.kind === 'retry' ? result.next.at : null,
    error: result.error ?? undefined,
  }
  if (result.next.kind === 'dead-letter') logger.warn(fields, 'webhook dead letter')
  else logger.info(fields, 'webhook attempt')
}
