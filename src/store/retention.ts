/**
 * Retention: what is final goes when its time is over, and earlier while the database is above its budget
 * (store/README.md "Retention"). In slices, with a pause behind each that grows with the time the store took: a busy
 * store is left to the mail. A run that is asked for during another is the same one. Rejects with the store's error;
 * the next run goes on. What it removes does not come back: for a day after a jump of the clock nothing goes by its age.
 */
import type { IsClockSteady } from '../base/clock-watch.ts'
import { DAY, MINUTE, type Clock } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { utcDay } from '../base/utc-day.ts'
import type { LinkHtml } from './records/engagement-records.ts'
import type { ForgetStep, OverdueContent } from './records/retention-records.ts'
import type { Store } from './store.ts'

/** In milliseconds, counted from the final state; `budget` in bytes, null: none. */
export interface RetentionTimes {
  content: number
  messages: number
  transcripts: number
  linkTargets: number
  webhooksSucceeded: number
  /** Dead letters. */
  webhooksFailed: number
  unmatchedReports: number
  statistics: number
  audit: number
  budget: number | null
}

interface RetentionOptions {
  store: Store
  times: () => RetentionTimes
  /** The targets of tracked links as text that is kept, or null: there are none. */
  keptLinksText: (html: LinkHtml, hasVariables: boolean) => Promise<string | null>
  clock: Clock
  /** Pauses are of real time. */
  realClock: Clock
  isClockSteady: IsClockSteady
  logger: Logger
}

export type Retention = ReturnType<typeof createRetention>

/** Rows of one slice. */
const ROWS = 1_000
/** Of verbs that end by rows alone, not by time. */
const ROWS_COUNTED = 250
/** http/README.md "Idempotency". */
const ANSWERS_KEPT = DAY
/** Hours by provider are of interest for a while; the sums of an IP for longer (http/README.md "IP statistics"). */
const HOURS_BY_PROVIDER_KEPT = 35 * DAY
/** Above this share of the budget what is final goes early, until the lower one: the file must not come to it. */
const BUDGET_HIGH = 0.85
const BUDGET_LOW = 0.8
/** Messages that have ended just now may still be spoken of: late answers, clicks, retries by hand. */
const YOUNGEST_REMOVED = 15 * MINUTE
/** Free space that stays in the file to be used again: a share of what is in use, and at least so much. */
const KEPT_FREE = { share: 0.02, bytes: 4 * 1_024 * 1_024 }
/** In milliseconds: a slice that took longer has waited for others. */
const BUSY_AFTER = 40
const PAUSE = { least: 5, busyFactor: 10, most: 2_000, mostAboveBudget: 100 }
/** Each may be large: of those that go early not many more than needed. */
const CONTENTS_AT_ONCE = 10

type Step = (after: number) => Promise<ForgetStep>

/** For what goes on until nothing more is over. */
const never = async (): Promise<boolean> => false

export function createRetention(options: RetentionOptions) {
  const { store, times, clock, logger } = options
  const slices = createSlices(options.realClock)
  const steps = createSteps(options, options.keptLinksText, slices)
  const parts: RetentionParts = { store, steps, slices }
  const budgetTold = createBudgetNews(logger)
  let running: Promise<void> | undefined

  const isAbove = async (budget: number | null): Promise<boolean> =>
    budget !== null && (await store.databaseSize()).usedBytes > BUDGET_HIGH * budget

  async function runOnce(): Promise<void> {
    const startedAt = performance.now()
    const { budget } = times()
    const isSteady = options.isClockSteady(DAY)
    const cutoffs = cutoffsAt(clock.now(), times())
    let removed = isSteady ? await forgetOverdue(parts, cutoffs, times()) : {}
    if (budget !== null) {
      if (await isAbove(budget)) removed = { ...removed, ...(await relieve(parts, cutoffs, { budget, isSteady })) }
      budgetTold.tell(budget, (await store.databaseSize()).usedBytes, isSteady)
    }
    const { usedBytes } = await store.databaseSize()
    const returned = await slices.drain(steps.freePages(Math.max(KEPT_FREE.bytes, KEPT_FREE.share * usedBytes)))
    const rows = Object.entries(removed).filter(([, count]) => count > 0)
    if (rows.length === 0 && returned === 0) return
    const milliseconds = Math.round(performance.now() - startedAt)
    logger.info({ ...Object.fromEntries(rows), returned_bytes: returned, ms: milliseconds }, 'retention')
  }

  const run = (): Promise<void> => {
    running ??= runOnce().finally(() => {
      running = undefined
    })
    return running
  }

  return {
    run,
    /** Notes the size of the database; runs when it is above its budget. */
    async watchBudget(): Promise<void> {
      const { usedBytes } = await store.databaseSize()
      await store.noteDatabaseSize(utcDay(clock.now()), usedBytes)
      // Where nothing could be removed the next look will not find more: that is left to the usual runs.
      if (!budgetTold.isTold(options.isClockSteady(DAY)) && (await isAbove(times().budget))) await run()
    },
    /** The run under way ends behind its slice. */
    stop: slices.stop,
  }
}

interface RetentionParts {
  store: Store
  steps: Steps
  slices: Slices
}

/** What is over, table by table; returns how many rows went, by name. */
async function forgetOverdue(
  { store, steps, slices: { drain } }: RetentionParts,
  cutoffs: Cutoffs,
  { statistics, audit, unmatchedReports }: RetentionTimes,
): Promise<Record<string, number>> {
  const { now, messages, links } = cutoffs
  const history = { hoursBefore: now - HOURS_BY_PROVIDER_KEPT, statisticsBefore: now - statistics }
  return {
    // Before the messages: those are removed when their content has gone.
    contents: await drain(steps.contents(Math.max(cutoffs.content, messages))),
    transcripts: await drain(steps.rows('forgetTranscripts', cutoffs.transcripts)),
    webhook_deliveries: await drain(steps.webhooks(now, cutoffs.webhooksSucceeded, cutoffs.webhooksFailed)),
    messages: await drain(steps.messages(messages, links)),
    events: await drain(steps.rows('forgetEvents', messages)),
    links: (await drain(steps.rows('forgetLinks', links))) + (await drain(steps.rows('forgetTraces', links))),
    answers: await drain(steps.rows('forgetAnswers', now - ANSWERS_KEPT, ROWS_COUNTED)),
    reports: await store.forgetUnmatchedReports(now - unmatchedReports),
    authentication: await drain(counted((limit) => store.forgetAuthenticationReports(utcDay(now - statistics), limit))),
    statistics:
      (await drain(counted((limit) => store.forgetIpHistory({ ...history, auditBefore: now - audit, limit })))) +
      (await drain(counted((limit) => store.forgetStatistics(now - statistics, limit)))),
    audit: await drain(counted((limit) => store.forgetAudit(now - audit, limit))),
  }
}

/**
 * Until it is below: content, dialogues, deliveries that ended well, messages, links, dead letters. By a clock that is
 * not steady only what goes whatever its age.
 */
async function relieve(
  { store, steps, slices: { drain } }: RetentionParts,
  { now, links, webhooksFailed }: Cutoffs,
  { budget, isSteady }: { budget: number; isSteady: boolean },
): Promise<Record<string, number>> {
  const isEnough = async (): Promise<boolean> => (await store.databaseSize()).usedBytes <= BUDGET_LOW * budget
  const young = now - YOUNGEST_REMOVED
  const ended = now + 1
  const ofAnyAge: Record<string, Step> = {
    early_contents: steps.contents(ended, isEnough),
    early_transcripts: steps.rows('forgetTranscripts', ended),
    early_webhook_deliveries: steps.webhooks(now, ended, isSteady ? webhooksFailed : 0),
  }
  const byAge: Record<string, Step> = {
    early_messages: steps.messages(young, links),
    early_links: steps.rows('forgetTraces', young),
    early_dead_letters: steps.webhooks(now, ended, young),
    early_messages_of_dead_letters: steps.messages(young, young),
  }
  const removed: Record<string, number> = {}
  for (const [name, step] of Object.entries(isSteady ? { ...ofAnyAge, ...byAge } : ofAnyAge)) {
    if (await isEnough()) break
    removed[name] = await drain(step, isEnough)
  }
  return removed
}

type Slices = ReturnType<typeof createSlices>

/** Work in slices, with a pause behind each, until somebody stops it. */
function createSlices(realClock: Clock) {
  let isStopped = false
  const pause = (milliseconds: number): Promise<void> =>
    new Promise((resolve) => void realClock.after(milliseconds, resolve))

  return {
    pause,
    isStopped: () => isStopped,
    stop() {
      isStopped = true
    },
    /** Slice by slice; returns how many rows went. */
    async drain(step: Step, isEnough = never): Promise<number> {
      const most = isEnough === never ? PAUSE.most : PAUSE.mostAboveBudget
      let removed = 0
      let after: number | null = 0
      while (after !== null && !isStopped) {
        const startedAt = performance.now()
        const done: ForgetStep = await step(after)
        removed += done.removed
        after = done.next
        if (after === null || (await isEnough())) break
        const took = performance.now() - startedAt
        await pause(Math.min(most, Math.max(PAUSE.least, took > BUSY_AFTER ? took * PAUSE.busyFactor : took)))
      }
      return removed
    },
  }
}

/** A verb that only says how many rows went, at most so many. */
function counted(forget: (limit: number) => Promise<number>): Step {
  return async () => {
    const removed = await forget(ROWS_COUNTED)
    return { removed, next: removed >= ROWS_COUNTED ? 0 : null }
  }
}

type WalkingVerb = 'forgetEvents' | 'forgetTranscripts' | 'forgetLinks' | 'forgetTraces' | 'forgetAnswers'

type Steps = ReturnType<typeof createSteps>

/** What one slice of each kind removes. */
function createSteps(
  { store, clock }: Pick<RetentionOptions, 'store' | 'clock'>,
  keptLinksText: RetentionOptions['keptLinksText'],
  { pause, isStopped }: Pick<Slices, 'pause' | 'isStopped'>,
) {
  const linksOf = async ({ contentId, hasVariables, tracksClicks }: OverdueContent) => {
    const html = tracksClicks ? await store.linkHtml(contentId) : null
    return { contentId, links: html === null ? null : await keptLinksText(html, hasVariables) }
  }

  return {
    contents:
      (before: number, isEnough = never): Step =>
      async (after) => {
        const found = await store.overdueContents({ before, now: clock.now(), after, limit: ROWS })
        let removed = 0
        let contents = found.contents
        while (contents.length > 0 && !isStopped() && !(await isEnough())) {
          const withLinks: Awaited<ReturnType<typeof linksOf>>[] = []
          // One after the other: submitted mail has up to 40 MiB.
          for (const content of contents.slice(0, CONTENTS_AT_ONCE)) withLinks.push(await linksOf(content))
          const done = await store.forgetContents({ before, contents: withLinks })
          removed += done.removed
          contents = contents.slice(done.looked)
          await pause(PAUSE.least)
        }
        return { removed, next: found.next }
      },
    messages:
      (before: number, linksBefore: number): Step =>
      (after) =>
        store.forgetMessages({ before, now: clock.now(), linksBefore, after, limit: ROWS }),
    rows:
      (verb: WalkingVerb, before: number, limit = ROWS): Step =>
      (after) =>
        store[verb]({ before, now: clock.now(), after, limit }),
    webhooks: (now: number, succeededBefore: number, failedBefore: number): Step =>
      counted((limit) => store.pruneWebhooks({ now, succeededBefore, failedBefore, limit })),
    freePages:
      (keptBytes: number): Step =>
      async () => {
        const bytes = await store.giveBackPages(keptBytes, ROWS)
        return { removed: bytes, next: bytes > 0 ? 0 : null }
      },
  }
}

const NOTHING_LEFT = 'the database is above its budget; nothing final is left in it'
const NOT_YET = 'the database is above its budget; more goes a day after the jump of the clock'

/** Logs once for each reason that the database is above its budget and stays so, and once that it is below again. */
function createBudgetNews(logger: Logger) {
  const reason = (isSteady: boolean): string => (isSteady ? NOTHING_LEFT : NOT_YET)
  let told: string | undefined
  return {
    /** By a clock that is as steady as this. */
    isTold: (isSteady: boolean): boolean => told === reason(isSteady),
    tell(budget: number, usedBytes: number, isSteady: boolean): void {
      const before = told
      told = usedBytes > BUDGET_HIGH * budget ? reason(isSteady) : undefined
      if (told === before) return
      const facts = { budget_bytes: budget, used_bytes: usedBytes }
      if (told === undefined) logger.info(facts, 'the database is below its budget again')
      else logger.error(facts, told)
    },
  }
}

type Cutoffs = ReturnType<typeof cutoffsAt>

const cutoffsAt = (now: number, times: RetentionTimes) => ({
  now,
  content: now - times.content,
  messages: now - times.messages,
  transcripts: now - times.transcripts,
  links: now - times.linkTargets,
  webhooksSucceeded: now - times.webhooksSucceeded,
  webhooksFailed: now - times.webhooksFailed,
})
