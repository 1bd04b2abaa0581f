/**
 * A request with an Idempotency-Key is handled once; repeats get the kept answer (http/README.md "Idempotency" and
 * "Order of checks" step 8).
 *
 * Messages commit their answer with themselves; of other routes it is kept once it is there. Only successes are kept,
 * without the secrets in them. Throws ServiceError `invalid_request` (400) for a key that is none, `conflict` for one
 * that stands for another request or whose first request is still under way.
 */
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { IdempotencyEntry } from '../../messages/accept/send-request.ts'
import type { HttpFeatures } from './features.ts'
import { idempotencyEntry, readIdempotencyKey, withoutSecrets } from './idempotency-key.ts'
import type { JsonDocument } from './read-json.ts'
import type { Answer, ApiRequest, Route } from './route.ts'
import { replayedAnswer } from './send-answers.ts'

/** May also throw at once. */
export type AnswerOnce = (request: ApiRequest, route: Route, document: JsonDocument) => Promise<Answer>

interface Asked {
  route: Route
  document: JsonDocument
}

export interface AnswerOnceOptions {
  idempotency: HttpFeatures['idempotency']
  logger: Logger
}

export function createAnswerOnce({ idempotency, logger }: AnswerOnceOptions): AnswerOnce {
  async function answerKept(key: string, request: ApiRequest, { route, document }: Asked): Promise<Answer> {
    const { path, principal } = request
    const entry = idempotencyEntry(principal.apiKeyId, key, { method: route.method, path, document: document.value })
    const begun = await idempotency.begin(entry)
    if (begun.kind === 'replayed') return replayedAnswer(request, begun)
    try {
      const answer = await route.handle({ ...request, idempotency: entry }, document)
      if (route.idempotency === 'after-answer') await keep(entry, answer)
      return answer
    } finally {
      idempotency.end(entry)
    }
  }

  /** What the request did is done: that its answer cannot be kept does not undo it. */
  async function keep(entry: IdempotencyEntry, { status, body }: Answer): Promise<void> {
    if (typeof body === 'string') return
    try {
      await idempotency.keepAnswer(entry, { status, body: JSON.stringify(withoutSecrets(body)) })
    } catch (thrown) {
      logger.warn({ error: errorText(thrown) }, 'answer not kept for its idempotency key')
    }
  }

  return (request, route, document) => {
    const key = route.idempotency === undefined ? null : readIdempotencyKey(request.headers)
    return key === null ? route.handle(request, document) : answerKept(key, request, { route, document })
  }
}
