/**
 * Row after row over one open connection.
 *
 * The row behind the one under way is taken early, and was rendered before, so that its envelope is there when the
 * final dot goes out. Without a row the connection waits, then says goodbye. Never throws. delivery/README.md "The SMTP
 * session".
 */
import { MINUTE } from '../../base/clock.ts'
import type { PathPlan, TryEnd } from '../protocol/try-result.ts'
import type { RenderedMessage } from './message-renderer.ts'
import {
  enter,
  renderRow,
  type DeliveryTools,
  type Rendering,
  type RowToSend,
  type RowTrials,
  type Trial,
} from './row-trials.ts'
import type { SmtpSession } from './smtp-session.ts'
import type { SendEnd, SessionJob } from './transaction-end.ts'
import { reuseLine } from './transcript.ts'

/** What a connection asks of its path. */
export interface FeedingPath {
  plan: () => PathPlan
  /** The next row that may go over this connection, if there is one now. */
  next: () => RowToSend | undefined
  /** No row begins any more: those that have not go back. */
  isHalted: () => boolean
  /** Others need the connection more, once this one has nothing under way. */
  isToLeave: (messages: number) => boolean
  /** It waits for a row. */
  onRest: () => void
}

export interface RowFeed {
  /** Sends a row as soon as it is rendered. */
  submit(trial: Trial, rendering: Rendering): Promise<void>
  /** Takes the row that goes behind the one under way; without any it waits, or says goodbye. */
  takeMore(): void
  /** Says goodbye if it waits for a row; false: it does not, or does so already. */
  retire(): boolean
  /** The connection has ended. */
  stop(): void
}

/** The end of what has not begun when the server stops. */
export const STOPPING: Extract<TryEnd, { kind: 'returned' }> = {
  kind: 'returned',
  why: 'stopping',
  reason: 'the server stops',
}
const TOO_LATE: SendEnd = { kind: 'returned', why: 'too-late', reason: 'its lifetime is over' }
/** The one under way, and the one behind it. */
const MOST_TAKEN = 2
const LONGEST_SESSION = 5 * MINUTE // delivery/README.md "The SMTP session"

export function createRowFeed(
  session: SmtpSession,
  { tools, trials, path }: { tools: DeliveryTools; trials: RowTrials; path: FeedingPath },
): RowFeed {
  /** Rows that were taken for this connection. */
  let taken = 1
  /** It takes no further row. */
  let isWornOut = false
  let isOver = false
  let idleTimer: NodeJS.Timeout | undefined

  const job: JobTools = { tools, session, path, onEnd }

  async function submit(trial: Trial, rendering: Rendering): Promise<void> {
    let rendered = await rendering
    const is8Bit = 'message' in rendered && rendered.message.envelope.is8Bit
    if (is8Bit && !isOver && !session.extensions.has8BitMime) rendered = await renderRow(tools, trial.sending, '7bit')
    if (isOver || !trials.has(trial)) return
    if ('problem' in rendered) {
      trials.conclude(trial, { kind: 'returned', why: 'not-renderable', reason: rendered.problem }, session.facts)
      return takeMore()
    }
    enter(trial, 'turn')
    session.send(jobOf(trial, rendered.message, job))
  }

  function onConfused(): void {
    isWornOut = true
  }

  function onEnd(trial: Trial, end: SendEnd, wasRcptSent: boolean): void {
    trials.finish(trial, end, { wasRcptSent, session, onConfused })
    takeMore()
  }

  function takeMore(): void {
    clearTimeout(idleTimer)
    if (isOver) return
    while (trials.size() < MOST_TAKEN && mayCarryMore()) {
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
    submit,
    takeMore,
    retire() {
      if (isOver || trials.size() > 0 || !mayCarryMore()) return false
      isWornOut = true
      takeMore()
      return true
    },
    stop() {
      isOver = true
      clearTimeout(idleTimer)
    },
  }
}

interface JobTools {
  tools: DeliveryTools
  session: SmtpSession
  path: FeedingPath
  onEnd: (trial: Trial, end: SendEnd, wasRcptSent: boolean) => void
}

function jobOf(
  trial: Trial,
  { envelope, bytes, provenFrom }: RenderedMessage,
  { tools, session, path, onEnd }: JobTools,
): SessionJob {
  const { sending, transcript } = trial
  const { claim, expiresAt } = sending.row
  return {
    envelope,
    bytes,
    provenFrom,
    transcript,
    mayPipeline: sending.mayPipeline,
    begin(messagesBefore) {
      if (path.isHalted()) return STOPPING
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
    onEnd: (end, wasRcptSent) => onEnd(trial, end, wasRcptSent),
  }
}

export function takeRendering(tools: Pick<DeliveryTools, 'render'>, sending: RowToSend): Rendering {
  const rendering = sending.rendering ?? renderRow(tools, sending, '8bit')
  sending.rendering = null
  return rendering
}
