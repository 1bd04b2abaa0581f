/**
 * One attempt to tell one endpoint about one event: sign the stored bytes, post them, judge the answer.
 *
 * Exactly status 200 within 10 seconds is success; every other answer is a failure with a sentence that says so. The
 * body goes out byte for byte as stored, so the signature of a retry is the one of the first attempt. Never throws.
 * service-interface.txt, Authentication 3 and Delivery rules; contract.md 8.3 and 8.4.
 */
import { createHmac } from 'node:crypto'
import { SECOND, toUnixSeconds } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { GuardedRequest } from '../network/guarded-request.ts'
import type { ClaimedWebhookDelivery } from '../store/records.ts'
import { openSecret } from './endpoint-secret.ts'

/** service-interface.txt, Delivery rules 2: from the start of the connect to the end of the answer's headers. */
const ANSWER_TIMEOUT = 10 * SECOND
const SUCCESS_STATUS = 200

export interface PostEventOptions {
  keyRing: KeyRing
  guardedRequest: GuardedRequest
  /** Version of this program, for the User-Agent. */
  version: string
}

export interface PostedEvent {
  isSuccess: boolean
  /** HTTP status, or null when there was no answer. */
  status: number | null
  /** What went wrong, or null. */
  error: string | null
  /** First bytes of the answer. */
  answer: string
}

/** `now` is the time of this attempt, Unix milliseconds. */
export async function postEvent(
  delivery: ClaimedWebhookDelivery,
  now: number,
  { keyRing, guardedRequest, version }: PostEventOptions,
): Promise<PostedEvent> {
  let secret: string
  try {
    secret = openSecret(keyRing, delivery.endpointId, delivery.sealedSecret)
  } catch (thrown) {
    return failed(`the secret of the endpoint can not be opened with this master key (${errorText(thrown)})`)
  }
  const headers = { ...deliveryHeaders(delivery, secret, now), 'User-Agent': `Posthorn/${version}` }
  const result = await guardedRequest.post({
    url: delivery.url, headers, body: delivery.body, timeoutMilliseconds: ANSWER_TIMEOUT,
  })
  if (result.kind === 'failed') return failed(result.reason)
  const { status, answer } = result
  if (status === SUCCESS_STATUS) return { isSuccess: true, status, error: null, answer }
  return { isSuccess: false, status, error: `answered ${status}; only ${SUCCESS_STATUS} counts`, answer }
}

/** contract.md 8.4. */
function deliveryHeaders(delivery: ClaimedWebhookDelivery, secret: string, now: number): Record<string, string> {
  const timestamp = String(toUnixSeconds(now))
  return {
    'Content-Type': 'application/json',
    'X-Service-Signature': signatureOf(delivery.body, secret),
    'X-Service-Event-Id': delivery.eventId,
    'X-Service-Delivery-Id': delivery.id,
    'X-Service-Attempt': String(delivery.attempts + 1),
    'X-Service-Timestamp': timestamp,
    'X-Service-Signature-V2': `t=${timestamp},v1=${signatureOf(`${timestamp}.${delivery.body}`, secret)}`,
  }
}

/** Lower-case hexadecimal HMAC-SHA256; the secret is used as given, in UTF-8, and never decoded. */
export function signatureOf(text: string, secret: string): string {
  return createHmac('sha256', secret).update(text, 'utf8').digest('hex')
}

function failed(error: string): PostedEvent {
  return { isSuccess: false, status: null, error, answer: '' }
}
