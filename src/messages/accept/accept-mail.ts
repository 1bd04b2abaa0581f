/**
 * From a checked mail to committed rows: the steps 12 to 16 of acceptance, which every door shares (messages/README.md
 * "Acceptance").
 *
 * Resolves only after the commit, so what was answered survives a crash. A key whose request was committed before gives
 * its kept answer, and takes no tokens.
 */
import { MINUTE, SECOND, type Clock } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { newIdentifier } from '../../base/identifier.ts'
import type { Metrics } from '../../base/metrics.ts'
import type { Egress, ProjectionRequest } from '../../egress/egress.ts'
import type { StoredContent, Stream } from '../../mail/message.ts'
import { isSimulated, simulatedName } from '../../mail/simulator.ts'
import type { AcceptRequest, AcceptResult, NewMessage, SuppressedMessage } from '../../store/records/accept-records.ts'
import type { QueuedRows } from '../../store/records/queue-records.ts'
import type { Store } from '../../store/store.ts'
import type { AcceptanceLog, AcceptedRequest } from './acceptance-log.ts'
import type { CheckedRecipient } from './check-shared-fields.ts'
import { mismatch } from './idempotency.ts'
import type { RequestReader } from './request-reader.ts'
import { requireSender, type SenderDomain, type SenderOptions } from './require-sender.ts'
import type { Acceptance, AcceptedMessages, Caller, Idempotent } from './send-request.ts'
import type { SendingRate } from './sending-rate.ts'

export interface AcceptanceOptions extends SenderOptions {
  store: Store
  clock: Clock
  reader: RequestReader
  egress: Pick<Egress, 'poolFor' | 'poolNames' | 'project' | 'expect'>
  rate: Pick<SendingRate, 'takeRecipients' | 'giveBackRecipients'>
  settings: AcceptanceSettings
  /** Whose mail never leaves the host: that to simulated recipients, or that of test keys as well. */
  captures: 'simulated' | 'test-and-simulated'
  metrics: Pick<Metrics, 'messagesAccepted'>
  logAccepted: AcceptanceLog
  /** There is new work; saves waiting, carries no data. */
  onQueued: (queued: QueuedRows) => void
  /** Events were written. */
  onEvents: () => void
}

/** Of sternpost.yaml. */
interface AcceptanceSettings {
  delivery: { allow_private_addresses: boolean; streams: Record<Stream, { lifetime: number }> }
  headers: { reference: string | null }
  api: { batch_recipients: number }
}

/** A mail that has passed steps 9 to 11. */
export interface CheckedSubmission {
  /** Domain of `from`. */
  domain: string
  stream: Stream
  /** Unix milliseconds; null: now. */
  sendAt: number | null
  /** Milliseconds; null: that of the stream. */
  lifetime: number | null
  /** null: the domain's. */
  ipPool: string | null
  recipients: readonly CheckedRecipient[]
  batch: AcceptRequest['batch']
  retryOf: string | null
  /**
   * Made only once nothing refuses the mail, and once: what it is made of is then given away. Mail that waits for its
   * commit would else fill the memory of this thread.
   */
  content(sender: SenderDomain): StoredContent
}

interface AcceptMail<Accepted> {
  mail: CheckedSubmission
  caller: Caller
  idempotent: Idempotent<Accepted> | null
  /** What is answered. */
  shape(messages: AcceptedMessages): Accepted
}

/** A simulated mailbox that stays full would else be tried for days (http/README.md "Simulated recipients"). */
const SIMULATED_SOFT_LIFETIME = 10 * SECOND
/** Seconds after which another try makes sense when the store could not commit. */
const RETRY_AFTER_SECONDS = '60'
/** Of a wait that is told (http/README.md "Answer of a send"). */
const LEAST_WAIT_TOLD = MINUTE

export async function acceptMail<Accepted>(
  asked: AcceptMail<Accepted>,
  options: AcceptanceOptions,
): Promise<Acceptance<Accepted>> {
  const { mail, caller } = asked
  const sender = await requireSender(mail.domain, caller, options)
  const count = mail.recipients.length
  options.rate.takeRecipients(caller.apiKeyId, count)
  let isAccepted = false
  try {
    const acceptance = await commit(asked, sender, options)
    isAccepted = acceptance.kind === 'accepted'
    return acceptance
  } finally {
    if (!isAccepted) options.rate.giveBackRecipients(caller.apiKeyId, count)
  }
}

async function commit<Accepted>(
  asked: AcceptMail<Accepted>,
  sender: SenderDomain,
  options: AcceptanceOptions,
): Promise<Acceptance<Accepted>> {
  const { mail, caller, idempotent, shape } = asked
  const { request, estimatedStartAt, leaving } = toAcceptRequest(mail, caller, sender, options)
  const accepted = acceptedMessages(request, estimatedStartAt)
  const idempotency =
    idempotent === null ? null : { entry: idempotent.entry, answer: idempotent.answer(shape(accepted)) }
  const endExpecting = options.egress.expect(request.pool, leaving)
  let isStored = false
  try {
    const result = await storeRequest({ ...request, content: mail.content(sender), idempotency }, options)
    if (result.kind === 'replayed') return result
    if (result.kind === 'mismatch') throw mismatch()
    isStored = true
    options.metrics.messagesAccepted.inc({ source: caller.source }, request.messages.length)
    options.logAccepted(request, result.suppressed, caller)
    options.onQueued(result.queued)
    return { kind: 'accepted', accepted: shape(withSuppressed(accepted, result.suppressed, options)) }
  } finally {
    endExpecting(isStored)
  }
}

function withSuppressed(
  accepted: AcceptedMessages,
  suppressed: readonly SuppressedMessage[],
  options: AcceptanceOptions,
): AcceptedMessages {
  if (suppressed.length === 0) return accepted
  options.onEvents()
  const recipients = [...accepted.recipients]
  for (const { index, reason } of suppressed) {
    const recipient = recipients[index]
    if (recipient !== undefined) recipients[index] = { ...recipient, status: 'suppressed', reason }
  }
  return { ...accepted, recipients }
}

interface ProjectedRequest {
  request: AcceptedRequest
  estimatedStartAt: number | null
  /** Messages that leave the host. */
  leaving: number
}

/** Step 14, then all that is stored but the content. */
function toAcceptRequest(
  mail: CheckedSubmission,
  caller: Caller,
  sender: SenderDomain,
  { clock, egress, settings, captures }: AcceptanceOptions,
): ProjectedRequest {
  const { stream, sendAt, batch, retryOf } = mail
  const now = clock.now()
  const isTest = caller.mode === 'test'
  const isCaptured = ({ domain }: CheckedRecipient): boolean =>
    isSimulated(domain) || (isTest && captures === 'test-and-simulated')
  const pool = egress.poolFor(mail.ipPool ?? sender.ipPool)
  const startsAt = sendAt ?? now
  const lifetime = mail.lifetime ?? settings.delivery.streams[stream].lifetime
  const leaving = mail.recipients.filter((recipient) => !isCaptured(recipient)).length
  const isRequested = mail.ipPool !== null && mail.ipPool === pool
  const estimatedStartAt =
    leaving === 0 ? null : projectedStart(egress, { pool, isRequested, count: leaving, stream, lifetime, startsAt })
  const request = {
    now,
    apiKeyId: caller.apiKeyId,
    isTest,
    domain: sender.name,
    pool,
    stream,
    sendAt,
    batch,
    retryOf,
    messages: mail.recipients.map((recipient): NewMessage => ({
      id: newIdentifier('msg', now),
      to: recipient.mailbox,
      recipientDomain: recipient.domain,
      variables: recipient.variables,
      isCaptured: isCaptured(recipient),
      expiresAt: startsAt + lifetime,
      ...simulation(recipient, startsAt),
    })),
    idempotency: null,
  }
  return { request, estimatedStartAt, leaving }
}

/** null: within a minute. */
function projectedStart(egress: AcceptanceOptions['egress'], request: ProjectionRequest): number | null {
  const projection = egress.project(request)
  if (projection.kind === 'refused') {
    const { code, text, retryAfterSeconds } = projection
    throw new ServiceError(code, text, { headers: { 'Retry-After': String(retryAfterSeconds) } })
  }
  const { startsAt } = projection
  return startsAt !== null && startsAt > request.startsAt + LEAST_WAIT_TOLD ? startsAt : null
}

function simulation(
  { mailbox, domain }: CheckedRecipient,
  startsAt: number,
): Partial<Pick<NewMessage, 'simulatedSuppression' | 'expiresAt'>> {
  if (!isSimulated(domain)) return {}
  switch (simulatedName(mailbox.address)) {
    case 'suppressed':
      return { simulatedSuppression: 'manual' }
    case 'soft':
      return { simulatedSuppression: null, expiresAt: startsAt + SIMULATED_SOFT_LIFETIME }
    default:
      return { simulatedSuppression: null }
  }
}

/** As if no message were suppressed. */
function acceptedMessages(
  { now, sendAt, messages }: AcceptedRequest,
  estimatedStartAt: number | null,
): AcceptedMessages {
  const status = sendAt === null ? 'queued' : 'scheduled'
  const recipients = messages.map(({ id, to }) => ({ messageId: id, to: to.address, status, reason: null }) as const)
  return { acceptedAt: now, recipients, estimatedStartAt }
}

/** Does not keep the request until it is stored. */
function storeRequest(request: AcceptRequest, { store }: AcceptanceOptions): Promise<AcceptResult> {
  return store.acceptMessages(request).catch((cause: unknown) => {
    const headers = { 'Retry-After': RETRY_AFTER_SECONDS }
    throw new ServiceError('unavailable', 'the message could not be stored; nothing was kept', { headers, cause })
  })
}
