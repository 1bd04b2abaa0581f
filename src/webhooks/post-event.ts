/**
 * One attempt to tell one endpoint about one event: sign the stored bytes, post them, judge the answer.
 *
 * Exactly status 200 within 10 seconds is success; every other answer is a failure with a sentence that says so. The
 * body goes out byte for byte as stored, so the signature of a retry is the one of the first attempt. Never throws.
 * http/README.md "Events"; webhooks/README.md "Deliveries" and "Signature".
 */
import { createHmac, type KeyObject } from 'node:crypto'
import { SECOND, toUnixSeconds } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { KeyRing } from '../base/key-ring.ts'
import type { GuardedRequest } from '../network/guarded-request.ts'
import type { ClaimedWebhookDelivery, WebhookTarget } from '../store/records/webhook-records.ts'
import { openSecrets, type OpenedSecrets } from './endpoint-secret.ts'

/** http/README.md "Events": from the start of the connect to the end of the answer's headers. */
const ANSWER_TIMEOUT = 10 * SECOND
const SUCCESS_STATUS = 200

export interface PostEventOptions {
  keyRing: KeyRing
  guardedRequest: GuardedRequest
  /** Version of this program, for the User-Agent. */
  version: string
}

/** What goes out, and where to. */
type PostedDelivery = WebhookTarget & Pick<ClaimedWebhookDelivery, 'id' | 'eventId' | 'body' | 'attempts'>

export interface PostedEvent {
  isSuccess: boolean
  /** HTTP status, or null when there was no answer. */
  status: number | null
  /** What went wrong, or null. */
  error: string | null
  /** First bytes of the answer. */
  answer: string
}

/** `now` is the time of this attempt, Unix milliseconds; of the answer so many bytes are kept. */
export async function postEvent(
  delivery: PostedDelivery,
  { now, mostAnswerBytes }: { now: number; mostAnswerBytes?: number },
  { keyRing, guardedRequest, version }: PostEventOptions,
): Promise<PostedEvent> {
  let secrets: OpenedSecrets
  try {
    secrets = openSecrets(keyRing, delivery, now)
  } catch (thrown) {
    return notPosted(`the secret of the endpoint cannot be opened with this master key (${errorText(thrown)})`)
  }
  const headers = deliveryHeaders(delivery, secrets, now)
  headers['User-Agent'] = `Sternpost/${version}`
  const result = await guardedRequest.post({
    url: delivery.url,
    headers,
    body: delivery.body,
    timeoutMilliseconds: ANSWER_TIMEOUT,
    ...(mostAnswerBytes === undefined ? {} : { mostAnswerBytes }),
  })
  if (result.kind === 'failed') return notPosted(result.reason)
  const { status, answer } = result
  if (status === SUCCESS_STATUS) return { isSuccess: true, status, error: null, answer }
  return { isSuccess: false, status, error: `answered ${status}; only ${SUCCESS_STATUS} counts`, answer }
}

/** webhooks/README.md "Signature". */
export function deliveryHeaders(
  { body, eventId, id, attempts }: Pick<PostedDelivery, 'body' | 'eventId' | 'id' | 'attempts'>,
  { secret, nextSecret }: OpenedSecrets | { secret: string; nextSecret: null },
  now: number,
): Record<string, string> {
  const timestamp = String(toUnixSeconds(now))
  const headers: Record<string, string> = {
    'Content-Type': 'application/json',
    'X-Service-Signature': signatureOf(body, secret),
    'X-Service-Event-Id': eventId,
    'X-Service-Delivery-Id': id,
    'X-Service-Attempt': String(attempts + 1),
    'X-Service-Timestamp': timestamp,
    'X-Service-Signature-V2': `t=${timestamp},v1=${signatureOf(`${timestamp}.${body}`, secret)}`,
  }
  if (nextSecret !== null) headers['X-Service-Signature-Next'] = signatureOf(body, nextSecret)
  return headers
}

/** Lower-case hexadecimal HMAC-SHA256; the secret is used as given, in UTF-8, and never decoded. */
export function signatureOf(text: string, secret: KeyObject | string): string {
  return createHmac('sha256', secret).update(text).digest('hex')
}

/** There was no answer. */
export function notPosted(error: string): PostedEvent {
  return { isSuccess: false, status: null, error, answer: '' }
}
