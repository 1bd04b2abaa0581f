/**
 * A request with an Idempotency-Key is handled once; repeats get the kept answer (http/README.md "Idempotency").
 *
 * Messages commit their answer with themselves; of other routes it is kept once it is there, if it is a success,
 * without the secrets in it. Throws ServiceError `invalid_request` (400) for a key that is none, `conflict` for one
 * that stands for another request, or whose first request is still under way.
 */
import { createHash } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { errorText, ServiceError } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import type { IdempotencyEntry } from '../../messages/accept/send-request.ts'
import type { HttpFeatures } from './features.ts'
import { canonicalDigest, type JsonDocument } from './read-json.ts'
import type { Answer } from './answer.ts'
import type { ApiRequest, Route } from './route.ts'
import { replayedAnswer } from './send-answers.ts'

/** May also throw at once. */
export type AnswerOnce = (request: ApiRequest, route: Route, document: JsonDocument) => Promise<Answer>

export function createAnswerOnce(idempotency: HttpFeatures['idempotency'], logger: Logger): AnswerOnce {
  async function answerKept(
    entry: IdempotencyEntry,
    request: ApiRequest,
    route: Route,
    document: JsonDocument,
  ): Promise<Answer> {
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
    if (key === null) return route.handle(request, document)
    const fingerprint = createHash('sha256')
      .update(`${route.method} ${request.path}\n`)
      .update(document.digest ?? canonicalDigest(document.value))
      .digest()
    return answerKept({ apiKeyId: request.principal.apiKeyId, key, fingerprint }, request, route, document)
  }
}

// 1 to 256 printable characters of ASCII.
const KEY = /^[\x20-\x7e]{1,256}$/
/** Left out of kept answers: they are shown once. */
const SECRET_FIELDS = ['key', 'secret']

export function givenKey(headers: IncomingHttpHeaders): string | string[] | undefined {
  return headers['idempotency-key'] ?? headers['x-idempotency-key']
}

/** null: none was sent. */
function readIdempotencyKey(headers: IncomingHttpHeaders): string | null {
  const given = givenKey(headers)
  if (given === undefined) return null
  const key = Array.isArray(given) ? given.join(', ') : given
  if (KEY.test(key)) return key
  throw new ServiceError('invalid_request', 'Idempotency-Key: expected 1 to 256 printable ASCII characters', {
    status: 400,
  })
}

/** An answer as it may be kept. */
function withoutSecrets(body: object): object {
  if (!('data' in body) || typeof body.data !== 'object' || body.data === null) return body
  const data = Object.entries(body.data).filter(([name]) => !SECRET_FIELDS.includes(name))
  return { ...body, data: Object.fromEntries(data) }
}
