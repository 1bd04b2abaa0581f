/**
 * Acceptance of one message: the checks in their documented order, then one verb of the store (contract.md 2.1, steps
 * 9 to 14 and 16).
 *
 *   9 recipient     invalid_recipient; its details also list what step 10 finds
 *  10 other fields  invalid_request
 *  11 attachments   attachment_too_large
 *  12 sender        forbidden (the key's own list), then domain_not_verified; a domain that allows subdomains signs for
 *                   them
 *  14 egress        ip_not_warmed, unavailable
 *  16 commit        unavailable with Retry-After; nothing was kept
 *
 * The first step that finds something answers, with all that it found; a refused request changes nothing. Resolves only
 * after the commit, so what was answered survives a crash. Everything that can be refused is refused here: delivery
 * never finds a message that cannot be rendered.
 */
import type { Clock } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { newIdentifier } from '../base/identifier.ts'
import type { Metrics } from '../base/metrics.ts'
import type { Egress } from '../egress/pool.ts'
import type { Domains } from '../senders/domains.ts'
import type { AcceptRequest, DomainRecord } from '../store/records.ts'
import type { Store } from '../store/store.ts'
import { decodeAttachments, sizeProblems } from './check-attachments.ts'
import { checkRequest } from './check-request.ts'
import type { CheckedRequest, RequestPolicy } from './check-request.ts'
import type { AcceptMessage, Caller, SendRequest } from './send-request.ts'

export interface AcceptMessageOptions {
  store: Store
  clock: Clock
  domains: Pick<Domains, 'requireVerified'>
  egress: Pick<Egress, 'poolFor' | 'refusal'>
  settings: { delivery: { allow_private_addresses: boolean; streams: { transactional: { lifetime: number } } } }
  metrics: Pick<Metrics, 'messagesAccepted'>
  /** There is new work; saves waiting, carries no data. */
  onQueued: () => void
}

const STREAM = 'transactional'
/** Seconds after which another try makes sense when the store could not commit. */
const RETRY_AFTER_SECONDS = '60'

export function createAcceptMessage(options: AcceptMessageOptions): AcceptMessage {
  const { store, clock, domains, egress, settings, metrics, onQueued } = options
  const { allow_private_addresses: allowReservedNames, streams } = settings.delivery

  return async (request, caller) => {
    const checked = readRequest(request, { allowReservedNames })
    const { name: domain, ipPool } = await requireSender(checked.domain, caller, domains)
    const pool = egress.poolFor(ipPool)
    const refusal = egress.refusal(pool)
    if (refusal !== undefined) throw new ServiceError(refusal.code, refusal.details)
    const now = clock.now()
    const messageId = newIdentifier('msg', now)
    await commit(store, {
      now,
      apiKeyId: caller.apiKeyId,
      domain,
      pool,
      stream: STREAM,
      expiresAt: now + streams[STREAM].lifetime,
      content: { ...checked.content, attachments: decodeAttachments(checked.attachments) },
      messages: [
        { id: messageId, to: checked.to, recipientDomain: checked.recipientDomain, variables: checked.variables },
      ],
    })
    metrics.messagesAccepted.inc({ source: caller.source })
    onQueued()
    return { messageId, acceptedAt: now }
  }
}

/** Steps 9 to 11. */
function readRequest(request: SendRequest, policy: RequestPolicy): CheckedRequest {
  const reading = checkRequest(request, policy)
  if (!reading.ok) {
    const { recipientProblems, fieldProblems } = reading
    const code = recipientProblems.length > 0 ? 'invalid_recipient' : 'invalid_request'
    throw new ServiceError(code, [...recipientProblems, ...fieldProblems].join('; '))
  }
  const tooLarge = sizeProblems(reading.checked.attachments)
  if (tooLarge.length > 0) throw new ServiceError('attachment_too_large', tooLarge.join('; '))
  return reading.checked
}

/**
 * Step 12: the domain that signs for `name`. A key that is limited to some domains learns nothing of others: only a
 * name that is on its list, or below one that is, is looked for.
 */
async function requireSender(
  name: string,
  caller: Caller,
  domains: AcceptMessageOptions['domains'],
): Promise<DomainRecord> {
  const isAllowed = (domain: string): boolean => caller.domains.length === 0 || caller.domains.includes(domain)
  const mayBeAllowed = isAllowed(name) || caller.domains.some((domain) => name.endsWith(`.${domain}`))
  const sender = mayBeAllowed ? await domains.requireVerified(name) : undefined
  if (sender !== undefined && (isAllowed(name) || isAllowed(sender.name))) return sender
  throw new ServiceError('forbidden', `this key may not send as ${name}, only as ${caller.domains.join(', ')}`)
}

async function commit(store: Store, request: AcceptRequest): Promise<void> {
  try {
    await store.acceptMessages(request)
  } catch (cause) {
    const headers = { 'Retry-After': RETRY_AFTER_SECONDS }
    throw new ServiceError('unavailable', 'the message could not be stored; nothing was kept', { headers, cause })
  }
}
