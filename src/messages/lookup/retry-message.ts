/**
 * Sending a message once more on request (messages/README.md "Lookup"). Throws ServiceError `not_found`, `conflict`
 * with the reason in plain words, and whatever acceptance refuses with.
 */
import type { RetriedMessageJson } from '../../api/message.ts'
import { ServiceError } from '../../base/errors.ts'
import type { Mailbox } from '../../mail/message.ts'
import { ownerOf, type Reach } from '../../mail/reach.ts'
import type { AcceptRequest } from '../../store/records/accept-records.ts'
import type { MessageView } from '../../store/records/lookup-records.ts'
import { acceptMail, type AcceptanceOptions, type CheckedSubmission } from '../accept/accept-mail.ts'
import { EVERY_LIST } from '../accept/list-name.ts'
import { reasonAgainst } from './explain-state.ts'
import type { Acceptance, Caller, Idempotent } from '../accept/send-request.ts'
import { requireMessage } from './visible-messages.ts'

type RetryMessage = (
  named: string,
  { caller, reach }: { caller: Caller; reach: Reach },
  idempotent: Idempotent<RetriedMessageJson> | null,
) => Promise<Acceptance<RetriedMessageJson>>

type RepeatedRequest = Omit<AcceptRequest, 'now' | 'apiKeyId' | 'idempotency'>

/** Entries of one address are few. */
const ALL_OF_ADDRESS = { domains: [], reason: null, scope: null, since: null, limit: 1_000, after: null }

export function createRetryMessage(options: AcceptanceOptions): RetryMessage {
  const { store, clock } = options

  return async (named, { caller, reach }, idempotent) => {
    const message = await requireMessage(store, named, reach, clock.now())
    const { id } = message
    if (message.state === 'deferred') return advance(message, idempotent, options)
    if (message.state !== 'bounced' && message.state !== 'expired') throw notRetriable(message)
    const request = await store.requestToRepeat(id, clock.now())
    const [repeated] = request?.messages ?? []
    if (request === null || repeated === undefined) {
      throw new ServiceError('conflict', `message ${id}: its content is no longer stored, so it cannot be sent again`)
    }
    const list = request.content.unsubscribe?.list ?? null
    await refuseSuppressed(repeated.to, { message, list }, options)
    return acceptMail(
      {
        mail: mailOf(id, request, clock.now()),
        caller: { ...caller, mode: request.isTest ? 'test' : 'live' },
        idempotent,
        shape: ({ recipients }) => {
          const [recipient] = recipients
          return { message_id: recipient?.messageId ?? '', retry_of: id, state: recipient?.status ?? 'queued' }
        },
      },
      options,
    )
  }
}

/** No message is stored, so the answer is kept for itself. */
async function advance(
  message: MessageView,
  idempotent: Idempotent<RetriedMessageJson> | null,
  { store, clock, onQueued }: AcceptanceOptions,
): Promise<Acceptance<RetriedMessageJson>> {
  const now = clock.now()
  const queued = await store.retryNow(message.id, now)
  if (queued === null) throw new ServiceError('conflict', `message ${message.id} is no longer deferred`)
  onQueued(queued)
  const accepted: RetriedMessageJson = { message_id: message.id, retry_of: null, state: 'deferred' }
  if (idempotent !== null) await store.keepAnswer(idempotent.entry, idempotent.answer(accepted), now)
  return { kind: 'accepted', accepted }
}

function notRetriable({ id, state }: MessageView): ServiceError {
  const rule = 'only a deferred, bounced or expired message can be tried again'
  return new ServiceError('conflict', `message ${id} is ${state}: ${reasonAgainst(state)}; ${rule}`)
}

/** Unlike in acceptance it is a conflict: the caller asked for this message alone. */
async function refuseSuppressed(
  { address }: Mailbox,
  { message, list }: { message: MessageView; list: string | null },
  { store }: AcceptanceOptions,
): Promise<void> {
  const { isTest, domains } = ownerOf(message)
  const { suppressions } = await store.listSuppressions({ ...ALL_OF_ADDRESS, isTest, email: address })
  const found = suppressions.find(
    ({ scope, domain }) => (scope === EVERY_LIST || scope === list) && (domain === null || domains.includes(domain)),
  )
  if (found === undefined) return
  const where = found.scope === EVERY_LIST ? '' : ` for the list ${found.scope}`
  throw new ServiceError('conflict', `${address} is on the suppression list${where} (${found.reason})`)
}

function mailOf(id: string, request: RepeatedRequest, now: number): CheckedSubmission {
  const { content, messages, stream, pool } = request
  const { address } = content.from
  return {
    domain: address.slice(address.lastIndexOf('@') + 1),
    stream,
    ipPool: pool,
    sendAt: null,
    batch: null,
    retryOf: id,
    lifetime: Math.max(...messages.map(({ expiresAt }) => expiresAt)) - now,
    recipients: messages.map(({ to: mailbox, recipientDomain: domain, variables }) => ({ mailbox, domain, variables })),
    content: () => content,
  }
}
