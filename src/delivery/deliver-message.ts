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
import { NO_CONNECTION } from './try-result.ts'
import type { DispatchedRow, PathPlan, Site, TryEnd } from './try-result.ts'

export interface RenderedMessage {
  envelope: SmtpEnvelope
  bytes: Buffer
}

export interface DeliveryTools {
  open(target: SessionTarget): Promise<Opened>
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
}

export const STOPPING: TryEnd = { kind: 'returned', why: 'stopping', reason: 'the server stops' }

type Rendering = Promise<{ message: RenderedMessage } | { problem: string }>

export async function deliverMessage(request: DeliveryRequest, tools: DeliveryTools): Promise<DeliveryTry> {
  // Begun before connecting: rendering and signing take no longer than the greeting of most hosts.
  const rendering: Rendering = tools.render(request.row).then(
    (message) => ({ message }),
    (thrown) => ({ problem: errorText(thrown) }),
  )
  if (request.session !== undefined) {
    const wasUsed = request.session.begun() > 0
    const tried = await sendOver(request.session, rendering, request, tools)
    if (!(wasUsed && isStale(tried.end))) return tried
  }
  return walkHosts(request, rendering, tools)
}

async function walkHosts(request: DeliveryRequest, rendering: Rendering, tools: DeliveryTools): Promise<DeliveryTry> {
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
  tools: DeliveryTools,
): Promise<Opened> {
  const target = { host, address, source: path.source, hostname: path.hostname }
  if (path.requiresTls) return tools.open({ ...target, tls: 'required' })
  const opened = await tools.open({ ...target, tls: 'when-announced' })
  if (opened.kind !== 'failed' || opened.failure.stage !== 'starttls') return opened
  return tools.open({ ...target, tls: 'none' })
}

async function sendOver(
  session: SmtpSession,
  rendering: Rendering,
  { row, isAborted }: DeliveryRequest,
  tools: DeliveryTools,
): Promise<DeliveryTry> {
  const { facts } = session
  const rendered = await rendering
  if (isAborted()) return { end: STOPPING, facts, session }
  if ('problem' in rendered) {
    return { end: { kind: 'returned', why: 'not-renderable', reason: rendered.problem }, facts, session }
  }
  if (tools.now() >= row.expiresAt) return { end: { kind: 'expired' }, facts: NO_CONNECTION, session }
  return { end: await session.send(rendered.message.envelope, rendered.message.bytes), facts, session }
}

/** The host had closed the idle connection: it says so with 421 to MAIL, or not at all. */
function isStale(end: TryEnd): boolean {
  if (end.kind === 'refused') return end.stage === 'mail' && end.reply.code === 421
  return end.kind === 'lost' && end.stage === 'mail'
}
