/**
 * One connection of a path: opens it for a row, sends row after row over it, closes it.
 *
 * The row behind the one under way is taken early, and was rendered before, so that its envelope is there when the
 * final dot goes out. A row of which the host has not said anything when the connection ended is given back, uncounted:
 * it is sent over another one. Every row it took is given back or reported, once. Never throws. delivery/README.md "The
 * SMTP session" and "Stages".
 */
import { MINUTE } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { ConnectionFacts } from '../../mail/reply/delivery-outcome.ts'
import type { ThreadPlace, ThreadStage } from '../../mail/whereabouts.ts'
import type { MessageForm, RenderedMessage } from './message-renderer.ts'
import { openConnection } from './open-connection.ts'
import type { ConnectionTools } from './open-connection.ts'
import type { SmtpSession } from './smtp-session.ts'
import type { SendEnd, SessionJob } from './transaction-end.ts'
import { reuseLine } from './transcript.ts'
import type { Transcript } from './transcript.ts'
import { NO_CONNECTION } from '../protocol/try-result.ts'
import type { DispatchedRow, PathFailure, PathPlan, Site, TryEnd, TryResult } from '../protocol/try-result.ts'

export interface DeliveryTools extends ConnectionTools {
  /** A new one for each try; null: none is kept. */
  transcript(): Transcript | null
  /** Rejects when the message can not be rendered or signed: it is not sent then. */
  render(row: DispatchedRow, form: MessageForm): Promise<RenderedMessage>
  /** Whether the dot may go out; the answer may never come. */
  askMark(claim: number, answer: (isOurs: boolean) => void): void
  /** By the dispatcher's clock. */
  now(): number
}

/** A row on its way through a path, over one connection or several. */
export interface PathRow {
  row: DispatchedRow
  /** For a connection, in milliseconds of the monotonic clock. */
  waitsSince: number
  /** Connections that ended before the host had said anything of it. */
  returns: number
  /** One command at a time: the host was confused by several. */
  mayPipeline: boolean
  /** RCPT was written over an earlier connection. */
  wasRcptSent: boolean
  /** Begun before its turn. */
  rendering: Rendering | null
}

export type Rendering = Promise<{ message: RenderedMessage } | { problem: string }>

export interface WorkerOptions {
  tools: DeliveryTools
  plan: () => PathPlan
  site: () => Site
  /** The next row that may go over this connection, if there is one now. */
  next: () => PathRow | undefined
  /** No row begins any more: those that have not go back. */
  isHalted: () => boolean
  /** Others need the connection more, once this one has nothing under way. */
  isToLeave: (messages: number) => boolean
  giveBack: (row: PathRow) => void
  report: (result: TryResult) => void
  onOpen: () => void
  /** It waits for a row. */
  onRest: () => void
  /** The connection did not come about; the row is the path's again, with the try that is to be told of it. */
  onFailed: (row: PathRow, failure: PathFailure, tell: (end: TryEnd) => void) => void
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

export const STOPPING: Extract<TryEnd, { kind: 'returned' }> = {
  kind: 'returned',
  why: 'stopping',
  reason: 'the server stops',
}
const TOO_LATE: SendEnd = { kind: 'returned', why: 'too-late', reason: 'its lifetime is over' }

/** One try of a row. */
interface Trial {
  pathRow: PathRow
  /** By the dispatcher's clock, which can jump, and in milliseconds of one that can not: how long it took is real. */
  startedAt: number
  ticks: number
  transcript: Transcript | null
  /** Its first command is out, or about to be. */
  isBegun: boolean
  stage: ThreadStage
  /** When it came there, in milliseconds of the monotonic clock. */
  stageSince: number
}

/** The one under way, and the one behind it. */
const MOST_TAKEN = 2
const LONGEST_SESSION = 5 * MINUTE // delivery/README.md "The SMTP session"
/** Connections that may end before a row is concluded to be why. */
const MOST_RETURNS = 3

export function startWorker(first: PathRow, options: WorkerOptions): ConnectionWorker {
  const { tools, plan, report } = options
  const trials = new Set<Trial>()
  let session: SmtpSession | undefined
  let isAborted = false
  let isOver = false
  /** Rows that were taken for this connection. */
  let taken = 1
  /** It takes no further row. */
  let isWornOut = false
  let idleTimer: NodeJS.Timeout | undefined
  /** What it is connected to, or tries to be. */
  let server: Pick<ThreadPlace, 'host' | 'address'> = { host: null, address: null }

  const newTrial = (pathRow: PathRow): Trial => ({
    pathRow,
    startedAt: tools.now(),
    ticks: performance.now(),
    transcript: tools.transcript(),
    isBegun: false,
    stage: 'render',
    stageSince: performance.now(),
  })

  function conclude(trial: Trial, end: TryEnd, facts: ConnectionFacts, wasRcptSent = false): void {
    trials.delete(trial)
    const { pathRow, startedAt, ticks, transcript } = trial
    report({
      claim: pathRow.row.claim,
      startedAt,
      durationMilliseconds: Math.round(performance.now() - ticks),
      facts,
      end,
      wasRcptSent: wasRcptSent || pathRow.wasRcptSent,
      transcript: transcript?.text() ?? null,
    })
  }

  async function open(): Promise<void> {
    const trial = newTrial(first)
    trials.add(trial)
    // Begun before connecting: rendering and signing take no longer than the greeting of most hosts.
    const rendering = takeRendering(first)
    const opened = await openConnection(
      {
        path: plan(),
        site: options.site(),
        domain: first.row.recipientDomain,
        mayPipeline: first.mayPipeline,
        transcript: trial.transcript,
        isAborted: () => isAborted,
        onConnect(place) {
          server = place
          enter(trial, 'connect')
        },
      },
      tools,
    )
    switch (opened.kind) {
      case 'aborted':
        return leave()
      case 'source-gone':
        if (!isAborted) conclude(trial, { kind: 'returned', why: 'source-gone', reason: opened.reason }, NO_CONNECTION)
        return leave()
      case 'failed': {
        trials.delete(trial)
        const tell = (end: TryEnd): void => conclude(trial, end, opened.facts)
        if (!isAborted) options.onFailed(first, opened.failure, tell)
        return leave()
      }
      case 'open':
        return serve(opened.session, trial, rendering)
    }
  }

  function serve(opened: SmtpSession, trial: Trial, rendering: Rendering): void {
    session = opened
    void opened.ended.then(leave)
    if (isAborted) return opened.stop(STOPPING.reason)
    options.onOpen()
    enter(trial, 'render')
    void submit(trial, rendering)
    takeMore()
  }

  function takeRendering(pathRow: PathRow): Rendering {
    const rendering = pathRow.rendering ?? renderRow(tools, pathRow, '8bit')
    pathRow.rendering = null
    return rendering
  }

  async function submit(trial: Trial, rendering: Rendering): Promise<void> {
    let rendered = await rendering
    const is8Bit = 'message' in rendered && rendered.message.envelope.is8Bit
    if (is8Bit && session?.extensions.has8BitMime === false) rendered = await renderRow(tools, trial.pathRow, '7bit')
    if (session === undefined || !trials.has(trial)) return
    if ('problem' in rendered) {
      conclude(trial, { kind: 'returned', why: 'not-renderable', reason: rendered.problem }, session.facts)
      return takeMore()
    }
    enter(trial, 'turn')
    session.send(jobOf(trial, rendered.message, session))
  }

  function jobOf(trial: Trial, { envelope, bytes, provenFrom }: RenderedMessage, opened: SmtpSession): SessionJob {
    const { pathRow, transcript } = trial
    const { claim, expiresAt } = pathRow.row
    return {
      envelope,
      bytes,
      provenFrom,
      transcript,
      mayPipeline: pathRow.mayPipeline,
      begin(messagesBefore) {
        if (options.isHalted()) return STOPPING
        if (tools.now() >= expiresAt) return TOO_LATE
        trial.isBegun = true
        enter(trial, 'mail')
        if (messagesBefore === 0) return null
        // It was taken early, and waited for the one before.
        trial.startedAt = tools.now()
        trial.ticks = performance.now()
        transcript?.note(reuseLine(opened.facts, messagesBefore))
        return null
      },
      onStage: (stage) => enter(trial, stage),
      askMark: (answer) => tools.askMark(claim, answer),
      onEnd(end, wasRcptSent) {
        finish(trial, end, { wasRcptSent, opened })
        takeMore()
      },
    }
  }

  function finish(
    trial: Trial,
    end: SendEnd,
    { wasRcptSent, opened }: { wasRcptSent: boolean; opened: SmtpSession },
  ): void {
    // An abort has reported it already.
    if (!trials.has(trial)) return
    const { pathRow } = trial
    pathRow.wasRcptSent ||= wasRcptSent
    if (end.kind === 'unsent') return returnUnsent(trial, end.reason, opened.facts)
    if (isConfused(end) && pathRow.mayPipeline && opened.extensions.isPipelining) {
      pathRow.mayPipeline = false
      isWornOut = true
      return giveBack(trial)
    }
    conclude(trial, end, isBeforeAll(end) ? NO_CONNECTION : opened.facts)
  }

  /** A host that ends every connection before it says anything of a row does not keep it for ever. */
  function returnUnsent(trial: Trial, reason: string, facts: ConnectionFacts): void {
    if (++trial.pathRow.returns <= MOST_RETURNS) return giveBack(trial)
    conclude(trial, { kind: 'lost', stage: 'mail', reason }, facts)
  }

  function giveBack(trial: Trial): void {
    trials.delete(trial)
    options.giveBack(trial.pathRow)
  }

  /** Takes the row that goes behind the one under way; without any it waits, or says goodbye. */
  function takeMore(): void {
    clearTimeout(idleTimer)
    if (session === undefined || isOver) return
    while (trials.size < MOST_TAKEN && mayCarryMore(session)) {
      const pathRow = options.next()
      if (pathRow === undefined) break
      taken++
      const trial = newTrial(pathRow)
      trials.add(trial)
      void submit(trial, takeRendering(pathRow))
    }
    if (trials.size > 0) return
    if (!mayCarryMore(session)) return void session.quit()
    idleTimer = setTimeout(() => void session?.quit(), plan().idleMilliseconds)
    options.onRest()
  }

  function mayCarryMore(opened: SmtpSession): boolean {
    isWornOut ||= taken >= plan().messagesPerConnection || performance.now() - opened.openedAt > LONGEST_SESSION
    return opened.isUsable() && !isWornOut && !options.isHalted() && !options.isToLeave(taken)
  }

  /** The connection has ended; its jobs have, too. */
  function leave(): void {
    if (isOver) return
    isOver = true
    clearTimeout(idleTimer)
    const facts = session?.facts ?? NO_CONNECTION
    session = undefined
    for (const trial of trials) returnUnsent(trial, 'the connection ended before the message was ready', facts)
    options.onEnd()
  }

  void open()
  return {
    isOpen: () => session !== undefined && !isOver,
    isBusy: () => trials.size > 0,
    isIdle: () => session !== undefined && !isOver && trials.size === 0,
    claims: () => Array.from(trials, ({ pathRow }) => pathRow.row.claim),
    where(claim) {
      const trial = [...trials].find(({ pathRow }) => pathRow.row.claim === claim)
      if (trial === undefined) return undefined
      return { stage: trial.stage, milliseconds: performance.now() - trial.stageSince, ...server }
    },
    wake: takeMore,
    retire() {
      if (session === undefined || isOver || trials.size > 0 || !mayCarryMore(session)) return false
      isWornOut = true
      takeMore()
      return true
    },
    abort() {
      isAborted = true
      session?.stop(STOPPING.reason)
      // What has begun has ended by now, or waits for the reply to its dot.
      for (const trial of trials) if (!trial.isBegun) conclude(trial, STOPPING, NO_CONNECTION)
    },
  }
}

function enter(trial: Trial, stage: ThreadStage): void {
  trial.stage = stage
  trial.stageSince = performance.now()
}

/** Never rejects. */
export function renderRow({ render }: Pick<DeliveryTools, 'render'>, { row }: PathRow, form: MessageForm): Rendering {
  return render(row, form).then(
    (message) => ({ message }),
    (thrown: unknown) => ({ problem: errorText(thrown) }),
  )
}

/** Nothing was said of it on the connection. */
function isBeforeAll(end: SendEnd): boolean {
  return end.kind === 'returned' && (end.why === 'stopping' || end.why === 'too-late')
}

/** The host did not understand the dialogue: one command at a time may help (delivery/README.md "Stages"). */
function isConfused(end: SendEnd): boolean {
  if (end.kind !== 'refused' || end.stage === 'dot') return false
  const { code, enhancedCode } = end.reply
  if (code < 500 || code > 503) return false
  // About the protocol: X.5.z of RFC 3463 §3.6. A 501 to RCPT without a code speaks of the address.
  if (enhancedCode !== null) return enhancedCode.startsWith('5.5.')
  return code !== 501 || end.stage !== 'rcpt'
}
