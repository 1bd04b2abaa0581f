/**
 * Rows on their way through a path, and their tries over one connection. Every row that is begun is reported or given
 * back, once. A row of which the host has not said anything when the connection ended is given back, uncounted, but not
 * for ever. Never throws. delivery/README.md "Stages".
 */
import { errorCode, errorText } from '../../base/errors.ts'
import type { ConnectionFacts } from '../../mail/reply/delivery-outcome.ts'
import type { ThreadPlace, ThreadStage } from '../../mail/whereabouts.ts'
import { NO_CONNECTION, type DispatchedRow, type TryEnd, type TryResult } from '../protocol/try-result.ts'
import type { MessageForm, RenderedMessage } from './message-renderer.ts'
import type { ConnectionTools } from './open-connection.ts'
import type { SmtpSession } from './smtp-session.ts'
import { isProtocolError, type SendEnd } from './transaction-end.ts'
import type { Transcript } from './transcript.ts'

export interface DeliveryTools extends ConnectionTools {
  /** A new one for each try; null: none is kept. */
  transcript(): Transcript | null
  /** Rejects when the message cannot be rendered or signed: it is not sent then. */
  render(row: DispatchedRow, form: MessageForm): Promise<RenderedMessage>
  /** Whether the dot may go out; the answer may never come. */
  askMark(claim: number, answer: (isOurs: boolean) => void): void
  /** By the dispatcher's clock. */
  now(): number
}

/** A row on its way through a path, over one connection or several. */
export interface RowToSend {
  row: DispatchedRow
  /** For a connection, in milliseconds of the monotonic clock. */
  waitsSince: number
  /** Connections that ended before the host had said anything of it. */
  returns: number
  /** One command at a time: the host was confused by several. */
  mayPipeline: boolean
  /** It may go in a flight: no try of it went without an answer, and no connection ended under it. */
  mayFly: boolean
  /** How often its path had been halted when it came: halted since, it begins no more. */
  haltsBefore: number
  /** RCPT was written over an earlier connection. */
  wasRcptSent: boolean
  /** Begun before its turn. */
  rendering: Rendering | null
}

export type Rendering = Promise<
  { message: RenderedMessage } | { problem: string; why: 'not-renderable' | 'store-away' }
>

export interface Trial {
  sending: RowToSend
  /** By the dispatcher's clock, which can jump, and in milliseconds of one that cannot: how long it took is real. */
  startedAt: number
  ticks: number
  transcript: Transcript | null
  /** Its first command is out, or about to be. */
  isBegun: boolean
  stage: ThreadStage
  /** When it came there, in milliseconds of the monotonic clock. */
  stageSince: number
}

interface Turn {
  wasRcptSent: boolean
  session: SmtpSession
  /** The host was confused by several commands at once: no row goes over this connection any more. */
  onConfused: () => void
}

export type RowTrials = ReturnType<typeof createRowTrials>

interface RowTrialsOptions {
  tools: Pick<DeliveryTools, 'now' | 'transcript'>
  report: (row: DispatchedRow, result: TryResult) => void
  giveBack: (sending: RowToSend) => void
}

/** Connections that may end before a row is concluded to be why. */
const MOST_RETURNS = 3

export function createRowTrials({ tools, report, giveBack }: RowTrialsOptions) {
  const trials = new Set<Trial>()

  function conclude(trial: Trial, end: TryEnd, facts: ConnectionFacts): void {
    trials.delete(trial)
    const { sending, startedAt, ticks } = trial
    const { row, wasRcptSent } = sending
    const durationMilliseconds = Math.round(performance.now() - ticks)
    const transcript = trial.transcript?.text() ?? null
    report(row, { claim: row.claim, startedAt, durationMilliseconds, facts, end, wasRcptSent, transcript })
  }

  function returnRow(trial: Trial): void {
    trials.delete(trial)
    giveBack(trial.sending)
  }

  /** A host that ends every connection before it says anything of a row does not keep it for ever. */
  function returnUnsent(trial: Trial, reason: string, facts: ConnectionFacts): void {
    if (++trial.sending.returns <= MOST_RETURNS) return returnRow(trial)
    conclude(trial, { kind: 'lost', stage: 'mail', reason }, facts)
  }

  return {
    begin(sending: RowToSend): Trial {
      const startedAt = tools.now()
      const ticks = performance.now()
      const transcript = tools.transcript()
      const trial: Trial = { sending, startedAt, ticks, transcript, isBegun: false, stage: 'render', stageSince: ticks }
      trials.add(trial)
      return trial
    },
    has: (trial: Trial) => trials.has(trial),
    size: () => trials.size,
    claims: () => Array.from(trials, ({ sending }) => sending.row.claim),
    where(claim: number): Pick<ThreadPlace, 'stage' | 'milliseconds'> | undefined {
      const trial = [...trials].find(({ sending }) => sending.row.claim === claim)
      if (trial === undefined) return undefined
      return { stage: trial.stage, milliseconds: performance.now() - trial.stageSince }
    },
    conclude,
    /** The row is the path's again. */
    leave: (trial: Trial) => void trials.delete(trial),
    /** What came of its turn on this connection. */
    finish(trial: Trial, end: SendEnd, { wasRcptSent, session: { facts, extensions }, onConfused }: Turn): void {
      // An abort has reported it already.
      if (!trials.has(trial)) return
      const { sending } = trial
      sending.wasRcptSent ||= wasRcptSent
      if (end.kind === 'unsent') {
        sending.mayFly = false
        return returnUnsent(trial, end.reason, facts)
      }
      if (isConfused(end) && sending.mayPipeline && extensions.isPipelining) {
        sending.mayPipeline = false
        // First: a row that is given back may go out at once.
        onConfused()
        return returnRow(trial)
      }
      conclude(trial, end, isBeforeAll(end) ? NO_CONNECTION : facts)
    },
    returnAll(reason: string, facts: ConnectionFacts): void {
      for (const trial of trials) returnUnsent(trial, reason, facts)
    },
    /** Concludes those of which no command is out. */
    concludeWaiting(end: TryEnd): void {
      for (const trial of trials) if (!trial.isBegun) conclude(trial, end, NO_CONNECTION)
    },
  }
}

export function enter(trial: Trial, stage: ThreadStage): void {
  trial.stage = stage
  trial.stageSince = performance.now()
}

/** Never rejects. */
export function renderRow({ render }: Pick<DeliveryTools, 'render'>, { row }: RowToSend, form: MessageForm): Rendering {
  return render(row, form).then(
    (message) => ({ message }),
    (thrown: unknown) => ({ problem: errorText(thrown), why: isAway(thrown) ? 'store-away' : 'not-renderable' }),
  )
}

/** Nobody sends it any more. */
export function dropRendering(rendering: Rendering | null): void {
  void rendering?.then((rendered) => 'message' in rendered && rendered.message.onGone?.())
}

/** Nothing was said of it on the connection. */
function isBeforeAll(end: SendEnd): boolean {
  return end.kind === 'returned' && (end.why === 'stopping' || end.why === 'too-late')
}

function isConfused(end: SendEnd): boolean {
  return end.kind === 'refused' && end.stage !== 'dot' && isProtocolError(end.reply, end.stage)
}

/** What it is made of cannot be read now. */
const isAway = (thrown: unknown): boolean => errorCode(thrown) === 'unavailable'
