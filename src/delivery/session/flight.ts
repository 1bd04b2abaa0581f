/**
 * Messages of one connection that are under way at once: of each RSET, MAIL, RCPT and BDAT with all its bytes in one
 * write, one behind the other, without a reply between them.
 *
 * | a message | waits for                                | a connection lost here                                  |
 * | --------- | ---------------------------------------- | ------------------------------------------------------- |
 * | held      | its mark; nothing of it was written      | `unsent`                                                |
 * | sent      | its replies, behind those of all before  | `refused` when a refusal came, else `unanswered`        |
 *
 * What the bytes that came at once say of messages is told when all of them were read: a host that turns out to be out
 * of step decides nothing by them. Behind a 421 nothing was taken, when the host then closes and has said no more but
 * refusals. Each job ends exactly once. delivery/README.md "Flights", RFC 3030 §4.2, RFC 2920 §3.1.
 */
import { readSmtpReply, type SmtpReply } from '../../mail/reply/smtp-reply.ts'
import { isPositive } from './envelope-steps.ts'
import type { FlightPermit } from './flight-permit.ts'
import { chunkOf } from './message-body.ts'
import type { RawReply } from './reply-reader.ts'
import { mailCommand, recipientCommand, type SmtpExtensions } from './smtp-extensions.ts'
import { answeredTogether, CLOSING_CODE, type Expectation, type SmtpWire, type WireEnd } from './smtp-wire.ts'
import {
  isOldMark,
  isProtocolError,
  tellJob,
  type ConnectionEnding,
  type Reset,
  type SendEnd,
  type SessionJob,
  type TransactionTimeouts,
} from './transaction-end.ts'

interface FlightTools {
  wire: SmtpWire
  extensions: SmtpExtensions
  timeouts: TransactionTimeouts
  ending: ConnectionEnding
  permit: FlightPermit
  reset: Reset
  /** A place is free: others may go. */
  onRoom: () => void
}

/** A message of a flight. */
interface Flyer {
  job: SessionJob
  /** Of its connection. */
  isFirst: boolean
  refusal: { stage: 'mail' | 'rcpt' | 'dot'; reply: SmtpReply } | null
}

type FlyerStage = 'rset' | 'mail' | 'rcpt' | 'bdat'

type Told = { flyer: Flyer; end: SendEnd }

export type Flight = ReturnType<typeof createFlight>

export function createFlight(tools: FlightTools) {
  const { wire, permit, reset, onRoom } = tools
  const held = new Set<Flyer>()
  /** In the order of their replies. */
  const sent: Flyer[] = []
  /** By the bytes that are being read. */
  const heard: Told[] = []
  const faults: Faults = { isMisunderstood: false, isClosing: false }
  const load = createLoad()
  const hear = createFlyerReplies(tools, faults, (flyer, end) => {
    sent.shift()
    heard.push({ flyer, end })
  })
  const openFlyer = createFlyerSteps(tools, hear)

  function onMark(flyer: Flyer, isOurs: boolean): void {
    if (!wire.isOpen() || !held.delete(flyer)) return
    if (isOurs && (sent.length > 0 || permit.isFresh())) {
      const needsReset = reset.take() || sent.length > 0
      sent.push(flyer)
      return openFlyer(flyer, needsReset)
    }
    load.leave({ flyer, end: isOurs ? SILENT : STALE }, false)
    watchMarks()
    onRoom()
  }

  function leaveHeld(end: SendEnd): void {
    const waiting = [...held]
    held.clear()
    for (const flyer of waiting) load.leave({ flyer, end }, false)
  }

  /** The wire watches the replies itself. */
  function watchMarks(): void {
    if (sent.length === 0) wire.limit(held.size > 0 ? tools.timeouts.mark : Infinity, 'the dot mark')
  }

  return {
    delivered: load.delivered,
    isEmpty: () => held.size + sent.length + heard.length === 0,
    hasSent: () => sent.length > 0,
    hasRoom: ({ bytes: { length } }: SessionJob) => permit.hasRoom(held.size + sent.length, load.bytes(), length),
    /** It has begun. */
    add(job: SessionJob, isFirst: boolean): void {
      const flyer: Flyer = { job, isFirst, refusal: null }
      held.add(flyer)
      load.add(job)
      watchMarks()
      job.onStage('mark')
      askFreshMark(job, (isOurs) => onMark(flyer, isOurs))
    },
    /** All replies of the bytes that came were taken. */
    tellHeard(): void {
      const told = heard.splice(0)
      for (const { end } of told) {
        permit.note(end)
        reset.note(end.kind === 'refused')
      }
      watchMarks()
      for (const each of told) load.leave(each)
    },
    /** What was not sent goes back; true: nothing was. */
    stop(end: SendEnd): boolean {
      leaveHeld(end)
      return sent.length === 0
    },
    /** The wire has ended. */
    settle(end: WireEnd): void {
      const state = { sent: sent.splice(0), heard: heard.splice(0), ...faults }
      const ends = endsOf(state, end)
      permit.ground(problemOf(state, end, ends))
      for (const each of ends) load.leave(each)
      leaveHeld(endOfHeld(end, state.sent.length > 0))
    },
    /** Nothing but the store is waited for. */
    isHeldOnly: () => held.size > 0 && sent.length === 0,
  }
}

const STALE: SendEnd = { kind: 'returned', why: 'stale', reason: 'the lease of the message is over' }
/** The host may have closed: the careful dialogue finds out. */
const SILENT: SendEnd = { kind: 'unsent', reason: 'nothing was heard of the host for a second' }

/** One that came late is asked for again. */
function askFreshMark(job: SessionJob, onMark: (isOurs: boolean) => void): void {
  const askedAt = performance.now()
  job.askMark((isOurs) => (isOurs && isOldMark(askedAt) ? askFreshMark(job, onMark) : onMark(isOurs)))
}

/** What the flight holds, and what came of it. */
function createLoad() {
  let bytes = 0
  let delivered = 0
  return {
    bytes: () => bytes,
    delivered: () => delivered,
    add: (job: SessionJob) => void (bytes += job.bytes.length),
    leave({ flyer: { job }, end }: Told, wasSent = true): void {
      bytes -= job.bytes.length
      if (end.kind === 'accepted') delivered++
      tellJob(job, end, wasSent)
    },
  }
}

interface Faults {
  /** The host does not know the dialogue: no reply is believed, though each fits its command. */
  isMisunderstood: boolean
  /** It has said that it takes nothing more. */
  isClosing: boolean
}

interface FlightState extends Faults {
  sent: readonly Flyer[]
  heard: readonly Told[]
}

/** What the end of the connection means for messages that were sent. */
function endsOf({ sent, heard, isMisunderstood, isClosing }: FlightState, end: WireEnd): Told[] {
  const { reason, isOutOfStep, isTimeout } = end
  const unanswered: SendEnd = { kind: 'unanswered', reason }
  const unsent: SendEnd = { kind: 'unsent', reason }
  if (isMisunderstood) {
    // Alone it was refused for sure. Of several, nobody knows which reply was whose.
    const isAlone = sent.length + heard.length === 1
    return [...heard.map(({ flyer }) => flyer), ...sent].map((flyer) => ({ flyer, end: isAlone ? unsent : unanswered }))
  }
  if (isOutOfStep) return [...heard.map(({ flyer }) => flyer), ...sent].map((flyer) => ({ flyer, end: unanswered }))
  const behind = isClosing && !isTimeout ? unsent : unanswered
  return [...heard, ...sent.map((flyer) => ({ flyer, end: endOfRefused(flyer) ?? behind }))]
}

function endOfRefused({ refusal, isFirst }: Flyer): SendEnd | null {
  if (refusal === null) return null
  const { stage, reply } = refusal
  // So it says nothing of a message that is not the first of its connection.
  const isClosedAtMail = !isFirst && stage === 'mail' && reply.code === CLOSING_CODE
  return isClosedAtMail ? { kind: 'unsent', reason: reply.text } : { kind: 'refused', stage, reply }
}

/** What it means for messages that wait for their mark; when that alone is waited for, the store has not answered. */
function endOfHeld({ reason, isTimeout }: WireEnd, isReplyWaitedFor: boolean): SendEnd {
  return isTimeout && !isReplyWaitedFor ? { kind: 'returned', why: 'unmarked', reason } : { kind: 'unsent', reason }
}

/** Why flights are not for this host; null: this end is no reason. */
function problemOf({ sent, isMisunderstood, isClosing }: FlightState, end: WireEnd, ends: Told[]): string | null {
  if (isMisunderstood) return `it does not understand flights: ${end.reason}`
  // Also behind a flight: it may answer every chunk twice.
  if (end.isOutOfStep) return `it was out of step: ${end.reason}`
  const left = isClosing ? ends.filter(({ end: { kind } }) => kind === 'unanswered').length : sent.length
  return left === 0 ? null : `${end.reason}, with ${left} in flight`
}

/** Its last reply has come. */
type OnConcluded = (flyer: Flyer, end: SendEnd) => void

/** Returns what hears the replies to messages. */
function createFlyerReplies({ timeouts, ending }: FlightTools, faults: Faults, onConcluded: OnConcluded) {
  function awaitClose(reply: RawReply, isTold: boolean): void {
    faults.isClosing = true
    ending.awaitClose(reply, timeouts.closing, isTold)
  }

  /** False: the wire has ended over it. */
  function refuse(flyer: Flyer, stage: 'mail' | 'rcpt' | 'dot', reply: RawReply): boolean {
    const read = readSmtpReply(reply.text)
    if (read === undefined) {
      ending.outOfStep(reply, stage)
      return false
    }
    const isFirst = flyer.refusal === null
    flyer.refusal ??= { stage, reply: read }
    if (reply.code === CLOSING_CODE) {
      awaitClose(reply, true)
      return true
    }
    // In the place of MAIL or RCPT it is of this message alone: its BDAT and the next RSET show whether the rest fits.
    if (!isFirst || stage !== 'dot' || !isProtocolError(read, stage)) return true
    faults.isMisunderstood = true
    ending.explain(reply.text)
    return false
  }

  function onReset(reply: RawReply): void {
    if (reply.code === CLOSING_CODE) awaitClose(reply, false)
    else if (!isPositive(reply) && !faults.isClosing) ending.outOfStep(reply, 'RSET')
  }

  function onEnvelope(flyer: Flyer, stage: 'mail' | 'rcpt', reply: RawReply): void {
    if (reply.code >= 300 && reply.code < 400) return ending.outOfStep(reply, stage.toUpperCase())
    if (!isPositive(reply)) refuse(flyer, stage, reply)
  }

  function onChunk(flyer: Flyer, reply: RawReply): void {
    if (reply.code >= 400) {
      const end = refuse(flyer, 'dot', reply) ? endOfRefused(flyer) : null
      if (end !== null) onConcluded(flyer, end)
      return
    }
    const read = readSmtpReply(reply.text)
    const isAccepted = read !== undefined && isPositive(reply) && flyer.refusal === null && !isAboutAddress(read)
    if (isAccepted) onConcluded(flyer, { kind: 'accepted', reply: read })
    else ending.outOfStep(reply, 'BDAT')
  }

  return (flyer: Flyer, stage: FlyerStage, reply: RawReply): void => {
    // A host that closes can refuse more, and do nothing else.
    if (faults.isClosing && reply.code < 400) {
      return ending.outOfStep(reply, `${stage.toUpperCase()} behind its 421`)
    }
    if (stage === 'rset') onReset(reply)
    else if (stage === 'bdat') onChunk(flyer, reply)
    else onEnvelope(flyer, stage, reply)
  }
}

/** Returns what writes one message. */
function createFlyerSteps(tools: FlightTools, hear: ReturnType<typeof createFlyerReplies>) {
  const { wire, extensions, timeouts, permit } = tools
  return (flyer: Flyer, needsReset: boolean): void => {
    const { job } = flyer
    const { transcript, envelope } = job
    const { pieces, sizeBytes } = chunkOf(job.bytes, job.provenFrom)
    let lines = ''
    const expectations: Expectation[] = []
    const add = (line: string, stage: FlyerStage): void => {
      transcript?.said(line)
      lines += `${line}\r\n`
      const limitMilliseconds = stage === 'bdat' ? timeouts.final_dot : timeouts[stage]
      expectations.push({ stage, limitMilliseconds, transcript, answer: (reply) => hear(flyer, stage, reply) })
    }
    if (needsReset) add('RSET', 'rset')
    add(mailCommand(envelope, job.bytes.length, extensions), 'mail')
    add(recipientCommand(envelope, extensions), 'rcpt')
    add(`BDAT ${sizeBytes} LAST`, 'bdat')
    transcript?.note(`the message, ${sizeBytes} bytes, as the last chunk`)
    job.onStage('dot')
    permit.begin()
    wire.say(lines, answeredTogether(expectations), { after: pieces })
  }
}

/** X.1.z of RFC 3463 §3.2: so MAIL and RCPT are answered, and never a message. */
function isAboutAddress({ enhancedCode }: SmtpReply): boolean {
  return enhancedCode?.startsWith('2.1.') === true
}
