/**
 * One connection of a path: opens it for a row, sends row after row over it (`row-feed.ts`), closes it.
 *
 * Every row it took is given back or reported, once. Never throws. delivery/README.md "The SMTP session" and "Stages".
 */
import type { ThreadPlace } from '../../mail/whereabouts.ts'
import { NO_CONNECTION, type PathFailure, type Site, type TryEnd, type TryResult } from '../protocol/try-result.ts'
import { openConnection } from './open-connection.ts'
import { createRowFeed, STOPPING, takeRendering, type FeedingPath, type RowFeed } from './row-feed.ts'
import { createRowTrials, enter, type DeliveryTools, type Rendering, type RowToSend, type Trial } from './row-trials.ts'
import type { SmtpSession } from './smtp-session.ts'

interface WorkerOptions extends FeedingPath {
  tools: DeliveryTools
  site: () => Site
  giveBack: (sending: RowToSend) => void
  report: (result: TryResult) => void
  onOpen: () => void
  /** The connection did not come about; the row is the path's again, with the try that is to be told of it. */
  onFailed: (sending: RowToSend, failure: PathFailure, tell: (end: TryEnd) => void) => void
  onEnd: () => void
}

export interface ConnectionWorker {
  isOpen(): boolean
  /** Rows are under way on it. */
  isBusy(): boolean
  /** It waits for a row. */
  isIdle(): boolean
  /** Of the rows that are under way on it. */
  claims(): number[]
  /** Where this row is; undefined: not here. */
  where(claim: number): ThreadPlace | undefined
  /** Rows may have come, or what it may do has changed. */
  wake(): void
  /** Says goodbye if it waits for a row; false: it does not, or does so already. */
  retire(): boolean
  /** Ends what has not sent its dot. */
  abort(): void
}

export function startWorker(first: RowToSend, options: WorkerOptions): ConnectionWorker {
  const { tools } = options
  const trials = createRowTrials(options)
  let session: SmtpSession | undefined
  let feed: RowFeed | undefined
  let isAborted = false
  let isOver = false
  /** What it is connected to, or tries to be. */
  let server: Pick<ThreadPlace, 'host' | 'address'> = { host: null, address: null }

  async function open(): Promise<void> {
    const trial = trials.begin(first)
    // Begun before connecting: rendering and signing take no longer than the greeting of most hosts.
    const rendering = takeRendering(tools, first)
    const request = {
      path: options.plan(),
      site: options.site(),
      domain: first.row.recipientDomain,
      mayPipeline: first.mayPipeline,
      transcript: trial.transcript,
      isAborted: () => isAborted,
      onConnect(place: { host: string; address: string }) {
        server = place
        enter(trial, 'connect')
      },
    }
    const opened = await openConnection(request, tools)
    if (opened.kind === 'open') return serve(opened.session, trial, rendering)
    if (opened.kind === 'failed') {
      trials.leave(trial)
      if (!isAborted) options.onFailed(first, opened.failure, (end) => trials.conclude(trial, end, opened.facts))
    } else if (opened.kind === 'source-gone' && !isAborted) {
      trials.conclude(trial, { kind: 'returned', why: 'source-gone', reason: opened.reason }, NO_CONNECTION)
    }
    leave()
  }

  function serve(opened: SmtpSession, trial: Trial, rendering: Rendering): void {
    session = opened
    void opened.ended.then(leave)
    if (isAborted) return opened.stop(STOPPING.reason)
    feed = createRowFeed(opened, { tools, trials, path: options })
    options.onOpen()
    enter(trial, 'render')
    void feed.submit(trial, rendering)
    feed.takeMore()
  }

  /** The connection has ended; its jobs have, too. */
  function leave(): void {
    if (isOver) return
    isOver = true
    feed?.stop()
    trials.returnAll('the connection ended before the message was ready', session?.facts ?? NO_CONNECTION)
    options.onEnd()
  }

  void open()
  return {
    isOpen: () => session !== undefined && !isOver,
    isBusy: () => trials.size() > 0,
    isIdle: () => session !== undefined && !isOver && trials.size() === 0,
    claims: trials.claims,
    where(claim) {
      const place = trials.where(claim)
      return place === undefined ? undefined : { ...place, ...server }
    },
    wake: () => feed?.takeMore(),
    retire: () => feed?.retire() ?? false,
    abort() {
      isAborted = true
      session?.stop(STOPPING.reason)
      // What has begun has ended by now, or waits for the reply to its dot.
      trials.concludeWaiting(STOPPING)
    },
  }
}
