/**
 * Takes webhook deliveries that are due to their endpoints, in rounds.
 *
 * A round is one commit: it records the posts that ended, and claims as many deliveries as there are free slots. The
 * end of a post brings the next round, at once or a little later, so that several ends share it. No delivery is posted
 * twice at the same time. While the store cannot record, results are kept and nothing new is claimed: memory stays
 * bounded. A post that does not end is let go as a failed attempt. webhooks/README.md "Deliveries" and "In whose hand a
 * delivery is".
 */
import { MINUTE, SECOND, type Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { createPollLoop } from '../base/poll-loop.ts'
import { within } from '../base/within.ts'
import type { ServerSettings } from '../config/settings/server-settings.ts'
import type { Store } from '../store/store.ts'
import type { ClaimedWebhookDelivery } from '../store/records/webhook-records.ts'
import { createClaimedAhead, type ClaimedAhead } from './claimed-ahead.ts'
import { createEndpointSlots } from './endpoint-slots.ts'
import { notPosted, postEvent, type PostedEvent, type PostEventOptions } from './post-event.ts'
import { createPostsUnderWay, type Post } from './posts-under-way.ts'
import { createWebhookResults, type WebhookResultsOptions } from './webhook-results.ts'

interface WebhookEngineOptions extends PostEventOptions, WebhookResultsOptions {
  store: Store
  clock: Clock
  /** For what takes real time whatever the schedule follows: a post that does not end. */
  realClock: Pick<Clock, 'after'>
  settings: Pick<ServerSettings['webhooks'], 'concurrency' | 'disable_after'>
  /** Seconds of the clock in a real one: a lease is for a post, which takes real time. */
  speed: () => number
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
/** A stop waits no longer for posts, which is twice what one may take, nor for the store. */
const LONGEST_STOP = 20 * SECOND
const LOST = 'webhook results lost, their events will be sent again'
const NO_END = 'the post did not end'

export function createWebhookEngine(options: WebhookEngineOptions): WebhookEngine {
  const { store, clock, realClock, settings, logger } = options
  const { total, per_endpoint: perEndpoint } = settings.concurrency
  const results = createWebhookResults(options)
  const ahead = createClaimedAhead()
  const poster = createPoster({ ...options, ahead, onEnd })
  let roundTimer: NodeJS.Timeout | undefined
  let cancelLook = (): void => {}
  let epoch = 0

  const loop = createPollLoop({
    clock,
    round,
    onError: (thrown) => logger.error({ err: thrown, waiting_results: results.size() }, 'webhook round failed'),
  })

  /** Others need what is free: nobody has more than its slots, so each post's end brings the next one at once. */
  const isScarce = (): boolean => poster.underWay() > total / 2

  async function round(): Promise<number | null> {
    clearTimeout(roundTimer)
    roundTimer = undefined
    const recording = results.record(epoch)
    if (results.isRefused()) await recording
    poster.postAll()
    const free = total - poster.underWay()
    if (free === 0) return recording.then(() => null)
    const more = isScarce() ? {} : ahead.allowances()
    const limit = free + Object.values(more).reduce((sum, count) => sum + count, 0)
    const now = clock.now()
    const leaseUntil = now + LEASE * options.speed()
    const busy = ahead.addedTo(poster.slotsTaken())
    const claiming = store.claimWebhooks({ now, epoch, leaseUntil, limit, perEndpoint, busy, ahead: more })
    const [recorded, claimed] = await Promise.allSettled([recording, claiming])
    const deliveries = claimed.status === 'fulfilled' ? claimed.value : []
    // Posted and not recorded yet is in hand, too.
    for (const delivery of deliveries) if (!poster.has(delivery.id) && !results.has(delivery.id)) ahead.add(delivery)
    poster.postAll()
    if (claimed.status === 'rejected') throw claimed.reason
    if (recorded.status === 'rejected') throw recorded.reason
    // The end of a post brings the next round, also for what waits for a slot.
    return poster.underWay() === 0 ? store.earliestWebhookDueAt(now) : now + LOOK_AGAIN_AFTER * options.speed()
  }

  function onEnd(post: Post, posted: PostedEvent): void {
    results.add(post, posted)
    if (posted.status !== null) ahead.noteAnswered(post.delivery.endpointId)
    poster.postAll(post.delivery.endpointId)
    if (results.size() >= MOST_RESULTS || poster.underWay() === 0 || isScarce()) loop.wake()
    else roundTimer ??= setTimeout(loop.wake, LONGEST_UNRECORDED)
  }

  function lookForOrphans(): void {
    poster.letGoOrphans()
    // The net for a time that the clock has leapt over.
    loop.wake()
    cancelLook = realClock.after(LOOK_FOR_ORPHANS_EVERY, lookForOrphans)
  }

  return {
    start(newEpoch) {
      epoch = newEpoch
      loop.start()
      cancelLook = realClock.after(LOOK_FOR_ORPHANS_EVERY, lookForOrphans)
    },
    wake: loop.wake,
    async stop() {
      // What waits in memory is due again in the next epoch.
      poster.stop()
      const postsEnded = poster.ended()
      // A round that has no answer may be recording results: the store must not hear of them twice.
      await answered(loop.stop(), realClock)
        .then(() => postsEnded)
        .then(() => answered(results.record(epoch), realClock))
        .catch((err: unknown) => logger.error({ err, results: results.size() }, LOST))
      cancelLook()
      clearTimeout(roundTimer)
    },
  }
}

/** As `work`; rejects when the store does not answer for longer than a stop waits. */
async function answered(work: Promise<void>, realClock: Pick<Clock, 'after'>): Promise<void> {
  const done = work.then(() => true)
  const isDone = await within(done, LONGEST_STOP, realClock)
  if (isDone !== true) throw new Error('the store does not answer')
}

interface PosterOptions extends Omit<WebhookEngineOptions, 'store' | 'speed'> {
  ahead: ClaimedAhead
  onEnd: (post: Post, posted: PostedEvent) => void
}

/** Posts side by side, at most `total` of them and so many to one endpoint as its slots allow. */
function createPoster(options: PosterOptions) {
  const { clock, realClock, settings, ahead, logger, metrics, onEnd } = options
  const slots = createEndpointSlots(settings.concurrency.per_endpoint)
  const underWay = createPostsUnderWay()
  let isStopping = false

  function postWaiting(endpointId: string): void {
    while (!isStopping && underWay.size() < settings.concurrency.total && slots.isFree(endpointId)) {
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
    slots.release(endpointId, posted.status !== null)
    onEnd(begun, posted)
  }

  function letGo(orphan: Post): void {
    const { delivery, at } = orphan
    metrics.orphans.inc({ kind: 'webhook' })
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

  return {
    /** Posts what waits in memory, as much as slots allow: of this endpoint, or of all. */
    postAll: (endpointId?: string): void =>
      (endpointId === undefined ? ahead.endpoints() : [endpointId]).forEach(postWaiting),
    underWay: underWay.size,
    has: underWay.has,
    slotsTaken: slots.taken,
    /** Those that were under way at the look before already: the retry schedule takes them from here. */
    letGoOrphans: () => underWay.look().forEach(letGo),
    /** Nothing is posted any more. */
    stop() {
      isStopping = true
    },
    /** Resolves when all posts have ended, or have been let go. */
    async ended() {
      const { promise: over, resolve: giveUp } = Promise.withResolvers<void>()
      const cancel = realClock.after(LONGEST_STOP, giveUp)
      await Promise.race([underWay.ended(), over])
      cancel()
      underWay.all().forEach(letGo)
    },
  }
}
