/**
 * Looking up and acting on messages and batches (http/README.md "Batch lookup and cancel" and "Messages"). An id that
 * nobody has and one that this key may not see give the same answer.
 */
import type { Logger } from '../../base/logger.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { noFieldsSchema } from '../requests/domain.ts'
import { searchSchema, toMessageQuery } from '../requests/search.ts'
import {
  batchSchema,
  canceledBatchSchema,
  canceledSchema,
  eventSchema,
  explanationSchema,
  listedMessageSchema,
  messageSchema,
  retriedSchema,
  transcriptSchema,
} from '../responses/message.ts'
import {
  dataSchema,
  listSchema,
  route,
  routeWithoutBody,
  routeWithQuery,
  success,
  successList,
} from '../exchange/route.ts'
import type { ApiRequest, Route } from '../exchange/route.ts'
import { replayedAnswer } from '../exchange/send-answers.ts'
import { callerOf, idempotent } from './email.ts'

const OK = 200

type Messages = HttpFeatures['messages']
/** Writes who did what to which message or batch. */
type Note = (what: string, request: ApiRequest, facts: Record<string, string | number>) => void

export function messageRoutes({ messages }: Pick<HttpFeatures, 'messages'>, logger: Logger): Route[] {
  const note: Note = (what, { requestId, principal }, facts) =>
    logger.info({ ...facts, request_id: requestId, api_key: principal.label }, what)
  return [
    searchRoute(messages),
    ...lookupRoutes(messages),
    ...reasonRoutes(messages),
    ...actionRoutes(messages, note),
    ...batchRoutes(messages, note),
  ]
}

/** GET /email */
function searchRoute(messages: Messages): Route {
  return routeWithQuery({
    method: 'GET',
    path: '/email',
    summary: 'Searches messages, newest first.',
    scope: 'messages:read',
    query: searchSchema,
    ok: { status: OK, schema: listSchema(listedMessageSchema) },
    errors: [],
    async handler({ principal }, parameters) {
      const page = await messages.search(toMessageQuery(parameters), principal)
      return successList(page.messages, page.next)
    },
  })
}

/** What is known of one message. */
function lookupRoutes(messages: Messages): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/email/:message_id',
      summary: 'One message with its delivery attempts.',
      scope: 'messages:read',
      body: null,
      ok: { status: OK, schema: dataSchema(messageSchema) },
      errors: ['not_found'],
      handler: async (request) => success(OK, await messages.message(idIn(request), request.principal)),
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/email/:message_id/events',
      summary: 'The timeline of a message, oldest first.',
      scope: 'messages:read',
      body: null,
      ok: { status: OK, schema: listSchema(eventSchema) },
      errors: ['not_found'],
      handler: async (request) => successList(await messages.events(idIn(request), request.principal), null),
    }),
  ]
}

/** Why it is as it is. */
function reasonRoutes(messages: Messages): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/email/:message_id/explain',
      summary: 'Why a message is in its state, in plain words.',
      scope: 'messages:read',
      body: null,
      ok: { status: OK, schema: dataSchema(explanationSchema) },
      errors: ['not_found'],
      handler: async (request) => success(OK, await messages.explain(idIn(request), request.principal)),
    }),
    routeWithoutBody({
      method: 'GET',
      path: '/email/:message_id/transcript',
      summary: 'The SMTP dialogue of each delivery attempt, without the message itself.',
      scope: 'messages:read',
      body: null,
      ok: { status: OK, schema: listSchema(transcriptSchema) },
      errors: ['not_found'],
      handler: async (request) => successList(await messages.transcript(idIn(request), request.principal), null),
    }),
  ]
}

/** What can be done with one message. */
function actionRoutes(messages: Messages, note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/email/:message_id/cancel',
      summary: 'Withdraws a message that waits.',
      scope: 'send',
      body: noFieldsSchema,
      ok: { status: OK, schema: dataSchema(canceledSchema) },
      errors: ['not_found', 'conflict'],
      async handler(request) {
        const canceled = await messages.cancel(idIn(request), request.principal)
        note('message canceled', request, { message_id: canceled.message_id })
        return success(OK, canceled)
      },
    }),
    route({
      method: 'POST',
      path: '/email/:message_id/retry',
      summary: 'Tries a deferred message now, or sends a bounced or expired one again.',
      scope: 'send',
      body: noFieldsSchema,
      ok: { status: OK, schema: dataSchema(retriedSchema) },
      idempotency: 'with-message',
      errors: ['not_found', 'conflict', 'domain_not_verified', 'ip_not_warmed'],
      async handler(request) {
        const acceptance = await messages.retry(
          idIn(request),
          callerOf(request),
          idempotent(request, (data) => ({ success: true, data })),
        )
        if (acceptance.kind === 'replayed') return replayedAnswer(request, acceptance)
        const { accepted } = acceptance
        note('message retried', request, { message_id: accepted.message_id })
        return success(OK, accepted)
      },
    }),
  ]
}

/** /email/batch/{batch_id} */
function batchRoutes(messages: Messages, note: Note): Route[] {
  return [
    routeWithoutBody({
      method: 'GET',
      path: '/email/batch/:batch_id',
      summary: 'A batch with the states of its messages.',
      scope: 'messages:read',
      body: null,
      ok: { status: OK, schema: dataSchema(batchSchema) },
      errors: ['not_found'],
      handler: async (request) => success(OK, await messages.batch(idIn(request), request.principal)),
    }),
    route({
      method: 'POST',
      path: '/email/batch/:batch_id/cancel',
      summary: 'Withdraws the messages of a batch that wait.',
      scope: 'send',
      body: noFieldsSchema,
      ok: { status: OK, schema: dataSchema(canceledBatchSchema) },
      errors: ['not_found'],
      async handler(request) {
        const canceled = await messages.cancelBatch(idIn(request), request.principal)
        note('batch canceled', request, { batch_id: canceled.batch_id, messages: canceled.canceled })
        return success(OK, canceled)
      },
    }),
  ]
}

function idIn({ params }: ApiRequest): string {
  return params['message_id'] ?? params['batch_id'] ?? ''
}
