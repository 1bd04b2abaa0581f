/**
 * Sends one sample to an endpoint now, with its real secret, and says what came back (http/README.md "Webhooks"). Not
 * retried, and counted nowhere; a disabled endpoint can be tried too.
 *
 * Throws ServiceError: `not_found`; `invalid_request` for an unknown kind; `rate_limited` for too many tries at once.
 */
import type { WebhookTrialJson } from '../api/webhook.ts'
import type { Clock } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import { newIdentifier } from '../base/identifier.ts'
import { createKeyedLimit } from '../base/keyed-limit.ts'
import { eventBody, FURTHER_EVENT_KINDS, GIVEN_EVENT_KINDS, type WebhookEventKind } from '../mail/event.ts'
import type { Store } from '../store/store.ts'
import type { ReplayedEvent } from '../store/records/webhook-records.ts'
import { UNKNOWN_KIND } from './endpoint-rules.ts'
import { known } from './endpoints.ts'
import { postEvent, type PostEventOptions } from './post-event.ts'

/** null kind: `webhook.test`. */
export type TryEndpoint = (endpointId: string, kind: string | null) => Promise<WebhookTrialJson>

interface TryEndpointOptions extends PostEventOptions {
  store: Store
  clock: Clock
  /** An event was told. */
  onTold: (events: readonly ReplayedEvent[]) => void
}

/** http/README.md "Webhooks". */
const MOST_ANSWER_BYTES = 2_048
/** To one endpoint: each may take ten seconds. */
const MOST_AT_ONCE = 4

export function createTryEndpoint(options: TryEndpointOptions): TryEndpoint {
  const { store, clock, onTold } = options
  const limit = createKeyedLimit(MOST_AT_ONCE)

  return async (endpointId, kind) => {
    const event = sampleEvent(kindOf(kind), clock.now())
    const { isTest, domains, ...target } = known(endpointId, await store.findWebhookTarget(endpointId))
    if (limit.free(endpointId) === 0) throw new ServiceError('rate_limited', 'earlier tests of it are still under way')
    limit.take(endpointId)
    try {
      const now = clock.now()
      const startedAt = performance.now()
      const delivery = { ...target, ...event, id: newIdentifier('whd', now), attempts: 0 }
      const posted = await postEvent(delivery, { now, mostAnswerBytes: MOST_ANSWER_BYTES }, options)
      onTold([{ ...event, owner: { isTest: isTest === true, domains } }])
      const { isSuccess: ok, status, error, answer } = posted
      return { ok, status, duration_ms: Math.round(performance.now() - startedAt), error, answer }
    } finally {
      limit.release(endpointId)
    }
  }
}

function kindOf(text: string | null): WebhookEventKind {
  if (text === null) return 'webhook.test'
  const kind = [...GIVEN_EVENT_KINDS, ...FURTHER_EVENT_KINDS].find((each) => each === text)
  if (kind === undefined) throw new ServiceError('invalid_request', `event: ${UNKNOWN_KIND}`)
  return kind
}

const RECIPIENT = 'ada@example.com'
const URL = 'https://example.com/'
const DOMAIN = { domain: 'example.com' }
const IP = { ip: '192.0.2.10' }

/** What comes behind message and recipient, for kinds of an email; else everything. */
const DATA: Record<WebhookEventKind, Record<string, string>> = {
  'email.delivered': { isp: 'gmail' },
  'email.bounced': {
    bounce_type: 'hard',
    bounce_code: '5.1.1',
    bounce_description: '550 5.1.1 The email account does not exist',
  },
  'email.complained': { isp: 'yahoo' },
  'email.opened': {},
  'email.clicked': { url: URL },
  'email.deferred': { isp: 'gmail', description: '451 4.7.1 Try again later', next_attempt_at: '0' },
  'email.suppressed': { reason: 'hard_bounce' },
  'email.unsubscribed': { list: 'bulk' },
  'email.canceled': {},
  'domain.verified': DOMAIN,
  'domain.degraded': DOMAIN,
  'ip.warmup.advanced': IP,
  'ip.warmup.held': IP,
  'ip.warmup.completed': IP,
  'ip.blocklisted': IP,
  'webhook.test': { description: 'Sent by hand, to try out the endpoint' },
}

/** Shaped as real ones, about nobody; `now` in Unix milliseconds. */
function sampleEvent(kind: WebhookEventKind, now: number): { eventId: string; kind: WebhookEventKind; body: string } {
  const ofMessage = kind.startsWith('email.') ? { message_id: newIdentifier('msg', now), recipient: RECIPIENT } : {}
  const id = newIdentifier('evt', now)
  const body = eventBody({ id, kind, at: now, data: { ...ofMessage, ...DATA[kind] } })
  return { eventId: id, kind, body }
}
