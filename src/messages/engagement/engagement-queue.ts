/**
 * Opens and clicks on their way into the store: they wait in memory, are judged, and are stored in batches
 * (messages/README.md "Hits"). `stop` judges and stores what is left, as far as the store takes it.
 */
import { SECOND, type Clock } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { EngagementHit, EngagementTally } from '../../store/records/engagement-records.ts'
import type { Store } from '../../store/store.ts'
import { isOfBurst, SAME_RUN_WITHIN, TWO_NETWORKS_WITHIN, type Click, type ClickRun } from './machine-hits.ts'

export interface EngagementQueueOptions {
  store: Pick<Store, 'recordEngagement'>
  clock: Clock
  logger: Logger
  metrics: Pick<Metrics, 'opens' | 'clicks' | 'engagementDropped'>
  /** Events were written. */
  onEvents: () => void
}

interface WaitingHit {
  hit: EngagementHit
  /** null: nothing more can be learned about it. */
  click: Click | null
}

const STORE_EVERY = SECOND
const JUDGE_CLICK_AFTER = 5 * SECOND
const MACHINE_AFTER_DELIVERY = 2 * SECOND
const MOST_WAITING = 10_000
/** The store serves others between two batches. */
const MOST_AT_ONCE = 500

export function createEngagementQueue(options: EngagementQueueOptions) {
  const { clock, logger, metrics } = options
  const recent = createRecentClicks()
  let waiting: WaitingHit[] = []
  let cancelTimer: (() => void) | undefined
  let storing: Promise<void> = Promise.resolve()
  let isStopped = false
  let isRefused = false

  const add = (hit: WaitingHit): void => {
    waiting.push(hit)
    dropOldest()
    schedule()
  }
  const dropOldest = (): void => {
    for (; waiting.length > MOST_WAITING; metrics.engagementDropped.inc()) waiting.shift()
  }
  const schedule = (): void => {
    if (cancelTimer !== undefined || isStopped || waiting.length === 0) return
    cancelTimer = clock.after(STORE_EVERY, () => {
      storing = storeDue(clock.now() - JUDGE_CLICK_AFTER).finally(() => {
        cancelTimer = undefined
        schedule()
      })
    })
  }

  /** Clicks that came later than `judgedUpTo` wait on. */
  const storeDue = async (judgedUpTo: number): Promise<void> => {
    const isDue = ({ click }: WaitingHit): boolean => click === null || click.at <= judgedUpTo
    const due = waiting.filter(isDue).map(judged)
    waiting = waiting.filter((each) => !isDue(each))
    recent.forget(judgedUpTo)
    try {
      for (; due.length > 0; due.splice(0, MOST_AT_ONCE)) await storeBatch(due.slice(0, MOST_AT_ONCE))
      isRefused = false
    } catch (thrown) {
      if (!isRefused) logger.warn({ error: errorText(thrown), waiting: due.length }, 'opens and clicks wait')
      isRefused = true
      waiting = [...due, ...waiting]
      dropOldest()
    }
  }
  const storeBatch = async (batch: readonly WaitingHit[]): Promise<void> => {
    const hits = batch.map(({ hit }) => hit)
    const request = { now: clock.now(), hits, machineAfterDelivery: MACHINE_AFTER_DELIVERY }
    const tally = await options.store.recordEngagement(request)
    count(tally, metrics)
    if (Object.values(tally).some((hits) => hits > 0)) options.onEvents()
  }
  const judged = ({ hit, click }: WaitingHit): WaitingHit => {
    const isBurst = click !== null && recent.isOfBurst(hit.messageId, click)
    return { hit: { ...hit, isMachine: hit.isMachine || isBurst }, click: null }
  }

  return {
    addOpen: (hit: EngagementHit) => add({ hit, click: null }),
    /** `network` as in machine-hits.ts. */
    addClick(hit: EngagementHit, network: string) {
      const click = { linkNumber: hit.link?.number ?? 0, at: hit.at, network }
      recent.add(hit.messageId, click)
      add({ hit, click })
    },
    async stop() {
      isStopped = true
      cancelTimer?.()
      await storing
      await storeDue(Number.POSITIVE_INFINITY)
    },
  }
}

function count(tally: EngagementTally, { opens, clicks }: Pick<Metrics, 'opens' | 'clicks'>): void {
  opens.inc({ machine: 'false' }, tally.opens)
  opens.inc({ machine: 'true' }, tally.machineOpens)
  clicks.inc({ machine: 'false' }, tally.clicks)
  clicks.inc({ machine: 'true' }, tally.machineClicks)
}

/** So many within seconds are of several links or networks. */
const MOST_RUNS_OF_MESSAGE = 50
const MOST_MESSAGES = 10_000

/** The clicks of the last seconds, by message, so that a burst of them is seen. Bounded. */
function createRecentClicks() {
  const runs = new Map<string, ClickRun[]>()
  return {
    add(messageId: string, click: Click) {
      const known = runs.get(messageId) ?? []
      runs.set(messageId, known)
      const run = known.findLast(
        ({ linkNumber, network }) => linkNumber === click.linkNumber && network === click.network,
      )
      if (run !== undefined && click.at <= run.until + SAME_RUN_WITHIN) run.until = click.at
      else if (known.length < MOST_RUNS_OF_MESSAGE) known.push({ ...click, until: click.at })
      const [oldest] = runs.keys()
      if (runs.size > MOST_MESSAGES && oldest !== undefined) runs.delete(oldest)
    },
    isOfBurst(messageId: string, click: Click) {
      const others = runs.get(messageId) ?? []
      return others.length === MOST_RUNS_OF_MESSAGE || isOfBurst(click, others)
    },
    /** What no click that came since `since` can be in a burst with is forgotten. */
    forget(since: number) {
      for (const [messageId, known] of runs) {
        const kept = known.filter(({ until }) => until >= since - TWO_NETWORKS_WITHIN)
        if (kept.length === 0) runs.delete(messageId)
        else if (kept.length < known.length) runs.set(messageId, kept)
      }
    },
  }
}
