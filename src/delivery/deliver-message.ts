/**
 * One try to deliver one message: an open session, else the hosts of its domain in order until one answers for good.
 *
 * Failures at connect, banner, EHLO or STARTTLS lead to the next address and host; no other host is ever asked after an
 * answer to MAIL, RCPT, DATA or the dot. A kept connection that turns out to be closed before anything of the message
 * was taken is replaced once, without counting. Never throws. Engine.md 10.2, 12.1, 13.1.
 */
import type { ConnectionFacts } from '../mail/delivery-outcome.ts'
import { errorText } from '../base/errors.ts'
import type { SetupFailure } from './read-smtp-error.ts'
import type { Opened, SessionTarget, SmtpSession } from './smtp-session.ts'
import type { SmtpEnvelope } from './smtp-transaction.ts'
import type { Transcript } from './transcript.ts'
import { NO_CONNECTION } from './try-result.ts'
import type { DispatchedRow, PathPlan, Site, TryEnd } from './try-result.ts'

export interface RenderedMessage {
  envelope: SmtpEnvelope
  bytes: Buffer
}

export interface DeliveryTools {
  open(target: SessionTarget, transcript: Transcript | null): Promise<Opened>
  /** A new one for each try; null: none is kept. */
  transcript(): Transcript | null
  /** Rejects when the message can not be rendered or signed: it is not sent then. */
  render(row: DispatchedRow): Promise<RenderedMessage>
  /** By the dispatcher's clock. */
  now(): number
}

export interface DeliveryRequest {
  row: DispatchedRow
  path: PathPlan
  site: Site
  /** An open connection to a host of the site. */
  session: SmtpSession | undefined
  /** Told when a session is there, so that it can be aborted from outside. */
  onSession: (session: SmtpSession) => void
  /** True once the row was given back: nothing of it may be sent any more. */
  isAborted: () => boolean
}

export interface DeliveryTry {
  end: TryEnd
  facts: ConnectionFacts
  /** To be kept for the next message, when it is still usable. */
  session: SmtpSession | undefined
  transcript: string | null
}

/** As far as it has come; `transcript` grows until the end. */
type Way = Omit<DeliveryTry, 'transcript'>

export const STOPPING: TryEnd = { kind: 'returned', why: 'stopping', reason: 'the server stops' }

type Rendering = Promise<{ message: RenderedMessage } | { problem: string }>

export async function deliverMessage(request: DeliveryRequest, tools: DeliveryTools): Promise<DeliveryTry> {
  // Begun before connecting: rendering and signing take no longer than the greeting of most hosts.
  const rendering: Rendering = tools.render(request.row).then(
    (message) => ({ message }),
    (thrown) => ({ problem: errorText(thrown) }),
  )
  const transcript = tools.transcript()
  const way = await findWay(request, rendering, { ...tools, transcript })
  return { ...way, transcript: transcript?.text() ?? null }
}

/** The tools of one try. */
type Tools = Omit<DeliveryTools, 'transcript'> & { transcript: Transcript | null }

async function findWay(request: DeliveryRequest, rendering: Rendering, tools: Tools): Promise<Way> {
  if (request.session !== undefined) {
    const wasUsed = request.session.begun() > 0
    const way = await sendOver(request.session, rendering, request, tools)
    if (!(wasUsed && isStale(way.end))) return way
  }
  return walkHosts(request, rendering, tools)
}

async function walkHosts(request: DeliveryRequest, rendering: Rendering, tools: Tools): Promise<Way> {
  let last: { failure: SetupFailure; facts: ConnectionFacts } | undefined
  for (const host of request.site.hosts) {
    for (const address of host.addresses) {
      if (request.isAborted()) return { end: STOPPING, facts: NO_CONNECTION, session: undefined }
      const opened = await openByPolicy({ host: host.name, address, path: request.path }, tools)
      if (opened.kind === 'failed') {
        last = opened
        continue
      }
      if (opened.kind === 'source-gone') {
        const end: TryEnd = { kind: 'returned', why: 'source-gone', reason: opened.reason }
        return { end, facts: NO_CONNECTION, session: undefined }
      }
      request.onSession(opened.session)
      return sendOver(opened.session, rendering, request, tools)
    }
  }
  const failure: SetupFailure = last?.failure ?? { stage: 'connect', code: '4.4.4', reason: 'no address to connect to' }
  const end: TryEnd = { kind: 'path-failed', ...failure, wasTried: true }
  return { end, facts: last?.facts ?? NO_CONNECTION, session: undefined }
}

/** Opportunistic TLS: when the handshake fails, one plain connection to the same address (RFC 7435 §3). */
async function openByPolicy(
  { host, address, path }: { host: string; address: string; path: PathPlan },
  { open, transcript }: Tools,
): Promise<Opened> {
  const target = { host, address, port: path.port, source: path.source, hostname: path.hostname }
  if (path.requiresTls) return open({ ...target, tls: 'required' }, transcript)
  const opened = await open({ ...target, tls: 'when-announced' }, transcript)
  if (opened.kind !== 'failed' || opened.failure.stage !== 'starttls') return opened
  return open({ ...target, tls: 'none' }, transcript)
}

async function sendOver(
  session: SmtpSession,
  rendering: Rendering,
  { row, isAborted }: DeliveryRequest,
  { now, transcript }: Tools,
): Promise<Way> {
  const { facts } = session
  const rendered = await rendering
  if (isAborted()) return { end: STOPPING, facts, session }
  if ('problem' in rendered) {
    return { end: { kind: 'returned', why: 'not-renderable', reason: rendered.problem }, facts, session }
  }
  if (now() >= row.expiresAt) return { end: { kind: 'expired' }, facts: NO_CONNECTION, session }
  const { envelope, bytes } = rendered.message
  return { end: await session.send(envelope, bytes, transcript), facts, session }
}

/** The host had closed the idle connection: it says so with 421 to MAIL, or not at all. */
function isStale(end: TryEnd): boolean {
  if (end.kind === 'refused') return end.stage === 'mail' && end.reply.code === 421
  return end.kind === 'lost' && end.stage === 'mail'
}
