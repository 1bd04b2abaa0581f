/**
 * One connection of a path: opens it for a row, sends row after row over it, closes it. Every row it took is given back
 * or reported, once. Never throws. delivery/README.md "The SMTP session" and "Stages".
 */
import { MINUTE } from '../../base/clock.ts'
import type { ThreadPlace } from '../../mail/whereabouts.ts'
import {
  NO_CONNECTION,
  type DispatchedRow,
  type PathBatch,
  type TryEnd,
  type TryResult,
} from '../protocol/try-result.ts'
import type { RenderedMessage } from './message-renderer.ts'
import { openConnection, type OpenedConnection } from './open-connection.ts'
import {
  createRowTrials,
  dropRendering,
  enter,
  renderRow,
  type DeliveryTools,
  type Rendering,
  type RowToSend,
  type RowTrials,
  type Trial,
} from './row-trials.ts'
import type { SmtpSession } from './smtp-session.ts'
import type { LocalFailure } from './smtp-wire.ts'
import type { SendEnd, SessionJob } from './transaction-end.ts'
import { reuseLine } from './transcript.ts'

/** The end of what has not begun when the server stops. */
export const STOPPING = { kind: 'returned', why: 'stopping', reason: 'the server stops' } as const
const TOO_LATE: SendEnd = { kind: 'returned', why: 'too-late', reason: 'its lifetime is over' }
/** "Must issue a STARTTLS command first" (RFC 3207 section 4). */
const TLS_NEEDED_CODE = 530
const LONGEST_SESSION = 5 * MINUTE // delivery/README.md "The SMTP session"
/** A message that takes longer leaves time enough to render the one behind it. */
const FAST_MILLISECONDS = 100

interface WorkerOptions {
  tools: DeliveryTools
  plan: () => PathBatch['path']
  /** The next row that may go over this connection, if there is one now. */
  next: () => RowToSend | undefined
  /** No row begins any more, or not this one: those that have not go back. */
  isHalted: (sending?: RowToSend) => boolean
  /** Others need the connection more, once this one has nothing under way. */
  isToLeave: (messages: number) => boolean
  onRest: () => void
  site: () => PathBatch['site']
  giveBack: (sending: RowToSend) => void
  report: (row: DispatchedRow, result: TryResult) => void
  onOpen: () => void
  /** The connection did not come about; the row is the path's again, with the try that is to be told of it. */
  onFailed: (sending: RowToSend, failure: TryEnd, tell: (end: TryEnd) => void) => void
  onEnd: () => void
}

export type ConnectionWorker = ReturnType<typeof startWorker>

export function startWorker(first: RowToSend, options: WorkerOptions) {
  const { tools } = options
  const trials = createRowTrials(options)
  let session: SmtpSession | undefined
  let feed: RowFeed | undefined
  let [isAborted, isOver] = [false, false]
  /** What it is connected to, or tries to be. */
  let server: Pick<ThreadPlace, 'host' | 'address'> = { host: null, address: null }

  async function open(): Promise<void> {
    const trial = trials.begin(first)
    // Begun before connecting: rendering and signing take no longer than the greeting of most hosts.
    const rendering = takeRendering(tools, first)
    const onConnect = (place: { host: string; address: string }): void => {
      server = place
      enter(trial, 'connect')
    }
    const to = { path: options.plan(), site: options.site(), domain: first.row.recipientDomain }
    const how = { mayPipeline: first.mayPipeline, transcript: trial.transcript, isAborted: () => isAborted, onConnect }
    const opened = await openConnection({ ...to, ...how }, tools)
    if (opened.kind === 'open') return serve(opened.session, trial, rendering)
    dropRendering(rendering)
    if (opened.kind !== 'aborted' && !isAborted) failTrial(trial, opened)
    leave()
  }

  function failTrial(trial: Trial, opened: Extract<OpenedConnection, { kind: 'failed' | 'local' }>): void {
    const [end, facts] = opened.kind === 'failed' ? [opened.failure, opened.facts] : [returned(opened), NO_CONNECTION]
    // Other connections of the path left from that address too: its IP is disabled first.
    if (opened.kind === 'local' && opened.why === 'source-gone') return trials.conclude(trial, end, facts)
    trials.leave(trial)
    options.onFailed(first, end, (told) => trials.conclude(trial, told, facts))
  }

  function serve(opened: SmtpSession, trial: Trial, rendering: Rendering): void {
    session = opened
    void opened.ended.then(leave)
    if (isAborted) {
      dropRendering(rendering)
      return opened.stop(STOPPING.reason)
    }
    feed = createRowFeed(opened, trials, options)
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
    ahead: () => feed?.ahead() ?? 0,
    claims: trials.claims,
    where(claim: number): ThreadPlace | undefined {
      const place = trials.where(claim)
      return place === undefined ? undefined : { ...place, ...server }
    },
    /** Rows may have come, or what it may do has changed. */
    wake: () => feed?.takeMore(),
    /** Says goodbye if it waits for a row; false: it does not, or does so already. */
    retire: () => feed?.retire() ?? false,
    /** Ends what has not sent its dot. */
    abort(): void {
      isAborted = true
      session?.stop(STOPPING.reason)
      // What has begun has ended by now, or waits for the reply to its dot.
      trials.concludeWaiting(STOPPING)
    },
  }
}

const returned = ({ why, reason }: LocalFailure): TryEnd => ({ kind: 'returned', why, reason })

type RowFeed = ReturnType<typeof createRowFeed>

/**
 * Row after row over one open connection. The row behind those under way is taken early, and was rendered before, so
 * that it is there when its turn comes. Without a row the connection waits, then says goodbye.
 */
function createRowFeed(session: SmtpSession, trials: RowTrials, path: WorkerOptions) {
  const { tools } = path
  let taken = 1
  let isWornOut = false
  let isOver = false
  let isFast = false
  let idleTimer: NodeJS.Timeout | undefined
  const job: JobTools = { session, path, onEnd }

  async function submit(trial: Trial, rendering: Rendering): Promise<void> {
    let rendered = await rendering
    const is8Bit = 'message' in rendered && rendered.message.envelope.is8Bit
    if (is8Bit && !isOver && !session.extensions.has8BitMime) {
      dropRendering(rendering)
      rendered = await renderRow(tools, trial.sending, '7bit')
    }
    if (isOver || !trials.has(trial)) return dropRendering(Promise.resolve(rendered))
    if ('problem' in rendered) {
      trials.conclude(trial, { kind: 'returned', why: rendered.why, reason: rendered.problem }, session.facts)
      return takeMore()
    }
    enter(trial, 'turn')
    session.send(jobOf(trial, rendered.message, job))
  }

  const wearOut = (): void => void (isWornOut = true)

  function onEnd(trial: Trial, end: SendEnd, wasRcptSent: boolean): void {
    isFast = tools.now() - trial.startedAt < FAST_MILLISECONDS
    trials.finish(trial, end, { wasRcptSent, session, onConfused: wearOut })
    // No row goes over it: the next connection asks for TLS again.
    if (end.kind === 'refused' && end.reply.code === TLS_NEEDED_CODE && session.facts.tls === null) wearOut()
    takeMore()
  }

  function takeMore(): void {
    clearTimeout(idleTimer)
    if (isOver) return
    while (trials.size() < session.mostTaken() && mayCarryMore()) {
      const sending = path.next()
      if (sending === undefined) break
      taken++
      void submit(trials.begin(sending), takeRendering(tools, sending))
    }
    if (trials.size() > 0) return
    if (!mayCarryMore()) return void session.quit()
    idleTimer = setTimeout(() => void session.quit(), path.plan().idleMilliseconds)
    path.onRest()
  }

  function mayCarryMore(): boolean {
    const age = performance.now() - session.openedAt
    isWornOut ||= taken >= path.plan().messagesPerConnection || age > LONGEST_SESSION
    return session.isUsable() && !isWornOut && !path.isHalted() && !path.isToLeave(taken)
  }

  return {
    /** Sends a row as soon as it is rendered. */
    submit,
    /** Takes the row that goes behind the one under way; without any it waits, or says goodbye. */
    takeMore,
    /** Rows to render before their turn: the last message was over so soon that those behind it may not have been ready. */
    ahead: () => (isFast ? session.mostTaken() - 1 : 0),
    /** Says goodbye if it waits for a row; false: it does not, or does so already. */
    retire(): boolean {
      if (isOver || trials.size() > 0 || !mayCarryMore()) return false
      isWornOut = true
      takeMore()
      return true
    },
    stop(): void {
      isOver = true
      clearTimeout(idleTimer)
    },
  }
}

interface JobTools {
  session: SmtpSession
  path: WorkerOptions
  onEnd: (trial: Trial, end: SendEnd, wasRcptSent: boolean) => void
}

function jobOf(trial: Trial, message: RenderedMessage, { session, path, onEnd }: JobTools): SessionJob {
  const { envelope, bytes, provenFrom } = message
  const { tools } = path
  const { sending, transcript } = trial
  const { claim, expiresAt } = sending.row
  return {
    envelope,
    bytes,
    provenFrom,
    transcript,
    mayPipeline: sending.mayPipeline,
    mayFly: sending.mayFly && !path.plan().carefulHosts.includes(session.facts.host ?? ''),
    begin(messagesBefore) {
      if (path.isHalted(sending)) return STOPPING
      if (tools.now() >= expiresAt) return TOO_LATE
      trial.isBegun = true
      enter(trial, 'mail')
      if (messagesBefore === 0) return null
      // It was taken early, and waited for the one before.
      trial.startedAt = tools.now()
      trial.ticks = performance.now()
      transcript?.note(reuseLine(session.facts, messagesBefore))
      return null
    },
    onStage: (stage) => enter(trial, stage),
    askMark: (answer) => tools.askMark(claim, answer),
    onEnd(end, wasRcptSent) {
      message.onGone?.()
      onEnd(trial, end, wasRcptSent)
    },
  }
}

function takeRendering(tools: Pick<DeliveryTools, 'render'>, sending: RowToSend): Rendering {
  const rendering = sending.rendering ?? renderRow(tools, sending, '8bit')
  sending.rendering = null
  return rendering
}
