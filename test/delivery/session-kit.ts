/**
 * SMTP sessions for the tests: opened to a scripted server, with messages that are sent as promises and marked at once.
 */
import { createSecureContext } from 'node:tls'
import type { Test } from 'tap'
import type { HostTls } from '../../src/delivery/protocol/host-tls.ts'
import {
  openSession,
  type Opened,
  type SessionTarget,
  type SessionTimeouts,
  type SmtpSession,
} from '../../src/delivery/session/smtp-session.ts'
import type { SmtpEnvelope } from '../../src/delivery/session/smtp-extensions.ts'
import type { TlsTicket } from '../../src/delivery/session/start-tls.ts'
import type { SendEnd, SessionJob } from '../../src/delivery/session/transaction-end.ts'
import { reuseLine, type Transcript } from '../../src/delivery/session/transcript.ts'
import { scriptedMx, type ScriptedMx, type ScriptedMxOptions } from '../support/scripted-mx.ts'

export const BYTES = Buffer.from('Subject: hello\r\n\r\n.a dot, and\r\n..two\r\n')
export const ENVELOPE: SmtpEnvelope = {
  from: 'b-token@bounces.acme.test',
  to: 'anna@example.test',
  envelopeId: 'b-token',
  needsUtf8: false,
  is8Bit: false,
}
const TIMEOUT = 30_000
export const TIMEOUTS: SessionTimeouts = {
  connect: TIMEOUT,
  banner: TIMEOUT,
  ehlo: TIMEOUT,
  starttls: TIMEOUT,
  handshake: TIMEOUT,
  mail: TIMEOUT,
  rcpt: TIMEOUT,
  data: TIMEOUT,
  body: TIMEOUT,
  mark: TIMEOUT,
  final_dot: TIMEOUT,
  rset: TIMEOUT,
  closing: TIMEOUT,
  quit: TIMEOUT,
}
const NO_POLICY = { type: 'none' as const, id: '' }

export const OPPORTUNISTIC: HostTls = { kind: 'opportunistic', policy: NO_POLICY }
export const REQUIRED: HostTls = { kind: 'required', by: 'the test', policy: { type: 'required', id: '' } }
export const PLAIN: HostTls = { kind: 'plain', reason: 'it failed before', policy: NO_POLICY }

export interface Target extends Partial<SessionTarget> {
  transcript?: Transcript
  timeouts?: Partial<SessionTimeouts>
  /** Kept from session to session. */
  tickets?: Map<string, TlsTicket>
}

export interface TestSession extends SmtpSession {
  /** Sends a message, whose mark is given at once. */
  deliver(envelope: SmtpEnvelope, bytes: Buffer, transcript?: Transcript): Promise<SendEnd>
}

/** A message whose parts a test takes in hand; `end` is how it ended. */
export interface TestJob extends SessionJob {
  end: Promise<SendEnd>
  wasRcptSent(): boolean
}

export async function mx(t: Test, options: ScriptedMxOptions = {}): Promise<ScriptedMx> {
  const server = await scriptedMx({ address: '127.0.0.2', ...options })
  t.teardown(() => server.close())
  return server
}

export function open(
  server: Pick<ScriptedMx, 'address' | 'port'>,
  { transcript, timeouts, tickets = new Map(), ...target }: Target = {},
): Promise<Opened> {
  return openSession(
    {
      host: 'mx.test',
      address: server.address,
      port: server.port,
      source: '127.0.0.11',
      hostname: 'mail.acme.test',
      tls: OPPORTUNISTIC,
      mayPipeline: true,
      inFlight: 4,
      knowsFlights: false,
      ...target,
    },
    { timeouts: { ...TIMEOUTS, ...timeouts }, secureContext: createSecureContext({ minVersion: 'TLSv1.2' }), tickets },
    transcript,
  )
}

export async function session(
  t: Test,
  server: Pick<ScriptedMx, 'address' | 'port'>,
  target: Target = {},
): Promise<TestSession> {
  const opened = await open(server, target)
  if (opened.kind !== 'open') throw new Error(JSON.stringify(opened))
  const { session: made } = opened
  t.teardown(() => made.stop('the test is over'))
  return {
    ...made,
    deliver(envelope, bytes, transcript) {
      const sent = job({
        envelope,
        bytes,
        transcript: transcript ?? null,
        begin(messagesBefore) {
          if (messagesBefore > 0) transcript?.note(reuseLine(made.facts, messagesBefore))
          return null
        },
      })
      made.send(sent)
      return sent.end
    },
  }
}

export function job(change: Partial<SessionJob> = {}): TestJob {
  const { promise: end, resolve } = Promise.withResolvers<SendEnd>()
  let wasRcptSent = false
  return {
    envelope: ENVELOPE,
    bytes: BYTES,
    transcript: null,
    mayPipeline: true,
    mayFly: true,
    begin: () => null,
    onStage: () => {},
    askMark: (answer) => void setImmediate(answer, true),
    ...change,
    end,
    wasRcptSent: () => wasRcptSent,
    onEnd(ended, was) {
      wasRcptSent = was
      change.onEnd?.(ended, was)
      resolve(ended)
    },
  }
}
