/**
 * An SMTP session of a simulated delivery thread with a simulated server: what `smtp-session.ts` promises, without a
 * socket. Messages go one after the other; the dot waits for its mark. Once two were delivered they go in flights
 * (delivery/README.md "Flights"): as many as there may be have their marks, and the server takes one after the other.
 */
import { readSmtpReply, type SmtpReply } from '../../src/mail/reply/smtp-reply.ts'
import type { Opened, SessionTarget, SmtpSession } from '../../src/delivery/session/smtp-session.ts'
import type { ConnectionEnd, SendEnd, SessionJob } from '../../src/delivery/session/transaction-end.ts'
import type { Connection, Receivers } from './receivers.ts'
import type { Owner } from './virtual-time.ts'

export interface SimulatedSessions {
  receivers: Receivers
  /** False: this machine does not have the address any more. */
  hasAddress: (ip: string) => boolean
}

const EXTENSIONS = {
  isPipelining: true,
  hasStartTls: false,
  has8BitMime: true,
  hasChunking: false,
  hasSmtpUtf8: true,
  hasDsn: false,
  hasSize: false,
  mostBytes: null,
}
const CONNECT_TIMEOUT = 30_000
const MARK_TIMEOUT = 60_000
const ACCEPTED = '250 2.0.0 Ok'
/** Messages, one after the other, before there are flights. */
const PROVEN_BY = 2
const NO_FAILURE = { reply: null, isTimeout: false, tlsResult: null, isInjection: false }

const sleep = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds))

/** `owner`: the delivery thread. */
export async function openSimulated(target: SessionTarget, owner: Owner, world: SimulatedSessions): Promise<Opened> {
  const { host, address, source } = target
  const connection: Connection = { site: siteOf(host), ip: source, owner }
  await sleep(world.receivers.answerTime(connection.site))
  if (!world.hasAddress(source)) return { kind: 'local', why: 'source-gone', reason: 'bind EADDRNOTAVAIL' }
  const facts = { host, localAddress: source, remoteAddress: address, tls: null }
  const failed = (reason: string, more: object = {}): Opened => ({
    kind: 'failed',
    facts,
    failure: { ...NO_FAILURE, stage: 'connect', code: '4.4.1', reason, ...more },
  })
  switch (world.receivers.connect(connection)) {
    case 'refused':
      return failed('connection refused')
    case 'silent':
      await sleep(CONNECT_TIMEOUT)
      return failed('no connection in time', { isTimeout: true })
    case 'limited': {
      const reply = replyOf('421 4.7.0 Too many connections')
      return failed(reply.text, { stage: 'banner', code: '4.3.2', reply })
    }
    case 'open':
      return { kind: 'open', session: createSession(target, connection, world.receivers), tlsResult: 'success' }
  }
}

/** A server has several names. */
export function siteOf(host: string): string {
  return host.slice(host.indexOf('.') + 1)
}

function createSession(
  { host, address, source, inFlight }: SessionTarget,
  connection: Connection,
  receivers: Receivers,
): SmtpSession {
  const { promise: ended, resolve } = Promise.withResolvers<ConnectionEnd>()
  const queue: SessionJob[] = []
  let active: SessionJob | undefined
  let isPastDot = false
  let isOpen = true
  let isLeaving = false
  let stopReason: string | null = null
  let begun = 0
  let delivered = 0
  /** Of a flight: those that wait for their marks, and those that were sent, in their order. */
  const held = new Set<SessionJob>()
  const sent: SessionJob[] = []
  let isTaking = false

  const isFlying = (): boolean => inFlight > 1 && delivered >= PROVEN_BY
  const pause = (): Promise<void> => sleep(receivers.answerTime(connection.site))

  function close(how: ConnectionEnd): void {
    if (!isOpen) return
    isOpen = false
    receivers.disconnect(connection)
    const left = [...held, ...queue.splice(0)]
    held.clear()
    for (const job of left) job.onEnd({ kind: 'unsent', reason: 'the connection ended' }, false)
    resolve(how)
  }

  function finish(job: SessionJob, end: SendEnd, wasRcptSent: boolean): void {
    if (active !== job) return
    active = undefined
    isPastDot = false
    job.onEnd(end, wasRcptSent)
  }

  async function run(): Promise<void> {
    const mayGo = (): boolean => isOpen && active === undefined && stopReason === null
    while (mayGo() && held.size + sent.length < (isFlying() ? inFlight : 1)) {
      const [job] = queue
      const flies = isFlying() && job?.mayFly === true
      if (job === undefined || (!flies && held.size + sent.length > 0)) return
      queue.shift()
      const problem = job.begin(begun)
      if (problem !== null) {
        job.onEnd(problem, false)
        continue
      }
      begun++
      if (flies) void hold(job)
      else {
        active = job
        await sendOne(job)
      }
    }
    if (stopReason !== null && active === undefined && sent.length === 0) close({ kind: 'ended-well', delivered })
  }

  async function hold(job: SessionJob): Promise<void> {
    held.add(job)
    const answer = await askMark(job)
    if (!held.delete(job)) return
    if (answer !== 'ours') {
      job.onEnd({ kind: 'returned', why: answer, reason: `the mark was ${answer}` }, false)
      return void run()
    }
    sent.push(job)
    if (!isTaking) void takeFlight()
  }

  /** The server takes what was sent, one after the other. */
  async function takeFlight(): Promise<void> {
    isTaking = true
    for (let [job] = sent; job !== undefined && isOpen; [job] = sent) {
      const { envelopeId: messageId } = job.envelope
      await pause()
      const verdict = receivers.judge(connection, messageId)
      if (verdict.kind === 'drop') return endFlight('unanswered')
      if (verdict.kind === 'reply') {
        sent.shift()
        job.onEnd({ kind: 'refused', stage: 'rcpt', reply: replyOf(verdict.text) }, true)
        if (verdict.closes) return endFlight('unsent')
        void run()
        continue
      }
      await pause()
      const { isTaken, isHeard } = receivers.take(connection, messageId)
      await sleep(receivers.answerTime(connection.site, true))
      if (!isTaken || !isHeard) return endFlight('unanswered')
      sent.shift()
      delivered++
      job.onEnd({ kind: 'accepted', reply: replyOf(ACCEPTED) }, true)
      void run()
    }
    isTaking = false
    if (stopReason !== null) void run()
  }

  /** What was sent and has no answer; behind a 421 nothing was taken. */
  function endFlight(kind: 'unanswered' | 'unsent'): void {
    const reason = 'the host closed the connection'
    for (const job of sent.splice(0)) job.onEnd({ kind, reason }, true)
    close(kind === 'unsent' ? { kind: 'ended-well', delivered } : { kind: 'dropped', reason })
  }

  async function sendOne(job: SessionJob): Promise<void> {
    const { envelopeId: messageId } = job.envelope
    await pause()
    if (active !== job) return
    const verdict = receivers.judge(connection, messageId)
    if (verdict.kind === 'drop') {
      finish(job, { kind: 'lost', stage: 'rcpt', reason: 'the host closed the connection' }, true)
      return close({ kind: 'dropped', reason: 'the host closed the connection' })
    }
    if (verdict.kind === 'reply') {
      finish(job, { kind: 'refused', stage: 'rcpt', reply: replyOf(verdict.text) }, true)
      if (verdict.closes) close({ kind: 'ended-well', delivered })
      return
    }
    await pause()
    if (active !== job) return
    const answer = await askMark(job)
    if (active !== job) return
    if (answer !== 'ours') {
      finish(job, { kind: 'returned', why: answer, reason: `the mark was ${answer}` }, true)
      return close({ kind: 'ended-well', delivered })
    }
    isPastDot = true
    await pause()
    const { isTaken, isHeard } = receivers.take(connection, messageId)
    await sleep(receivers.answerTime(connection.site, true))
    if (isTaken && isHeard) {
      delivered++
      return finish(job, { kind: 'accepted', reply: replyOf(ACCEPTED) }, true)
    }
    finish(job, { kind: 'unanswered', reason: 'the host closed the connection' }, true)
    close({ kind: 'dropped', reason: 'the host closed the connection' })
  }

  function askMark(job: SessionJob): Promise<'ours' | 'stale' | 'unmarked'> {
    return new Promise((answer) => {
      const timer = setTimeout(() => answer('unmarked'), MARK_TIMEOUT)
      job.askMark((isOurs) => {
        clearTimeout(timer)
        answer(isOurs ? 'ours' : 'stale')
      })
    })
  }

  return {
    facts: { host, localAddress: source, remoteAddress: address, tls: null },
    extensions: EXTENSIONS,
    openedAt: performance.now(),
    ended,
    isUsable: () => isOpen && !isLeaving && stopReason === null,
    isPastDot: () => isPastDot || sent.length > 0,
    mostTaken: () => (isFlying() ? inFlight + 1 : 2),
    inFlight,
    flightProblem: () => null,
    takesFlights: () => isFlying() || null,
    send(job) {
      queue.push(job)
      void run()
    },
    async quit() {
      if (isOpen && !isLeaving) {
        isLeaving = true
        await pause()
        close({ kind: 'ended-well', delivered })
      }
      await ended
    },
    stop(reason) {
      stopReason = reason
      for (const job of held) job.onEnd({ kind: 'returned', why: 'stopping', reason }, false)
      held.clear()
      if (isPastDot || sent.length > 0) return
      const job = active
      if (job !== undefined) finish(job, { kind: 'returned', why: 'stopping', reason }, false)
      close({ kind: 'ended-well', delivered })
    },
  }
}

function replyOf(text: string): SmtpReply {
  const reply = readSmtpReply(text)
  if (reply === undefined) throw new Error(`no reply: ${text}`)
  return reply
}
