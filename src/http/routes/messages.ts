/**
 * Looking up and acting on messages and batches (http/README.md "Messages"). An id that nobody has and one that this
 * key may not see give the same answer.
 */
import * as wire from '../../api/message.ts'
import { mailPolicy } from '../../base/mail-policy.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { OK, okData, okList, success, successList } from '../exchange/answer.ts'
import { routesOf, type ApiRequest, type Note, type Route } from '../exchange/route.ts'
import { replayedAnswer } from '../exchange/send-answers.ts'
import { callerOf, idempotent } from './email.ts'

const { get } = routesOf('messages:read')
const { post } = routesOf('send')
/** Mail may hold what only its reader should see: not for every key that reads messages. */
const admin = routesOf('admin')

type Messages = HttpFeatures['messages']

export function messageRoutes({ messages }: Pick<HttpFeatures, 'messages'>, note: Note): Route[] {
  return [...lookupRoutes(messages), ...actionRoutes(messages, note)]
}

function lookupRoutes(messages: Messages): Route[] {
  return [
    get('/email', {
      summary: 'Searches messages, newest first.',
      query: wire.searchSchema,
      ok: okList(wire.listedMessageSchema),
      async handler({ principal }, query) {
        const page = await messages.search(query, principal.reach)
        return successList(page.messages, page.next)
      },
    }),
    get('/email/:message_id', {
      summary: 'One message with its delivery attempts.',
      ok: okData(wire.messageSchema),
      handler: async (request) => success(await messages.message(idIn(request), request.principal.reach)),
    }),
    admin.get('/email/:message_id/content', {
      summary: 'What a message looks like, while its content is kept; its html alone with Accept: text/html.',
      query: wire.contentQuerySchema,
      ok: { ...okData(wire.contentSchema), otherType: 'text/html' },
      async handler(request, { images }) {
        const content = await messages.content(idIn(request), request.principal.reach)
        if (request.headers.accept?.startsWith('text/html') !== true) return success(content)
        request.setHeader('Content-Security-Policy', mailPolicy(images === 'remote'))
        return { status: OK, body: content.html ?? '', contentType: 'text/html; charset=utf-8' }
      },
    }),
    get('/email/:message_id/events', {
      summary: 'The timeline of a message, oldest first.',
      ok: okList(wire.eventSchema),
      handler: async (request) => successList(await messages.events(idIn(request), request.principal.reach)),
    }),
    get('/email/:message_id/explain', {
      summary: 'Why a message is in its state, in plain words.',
      ok: okData(wire.explanationSchema),
      handler: async (request) => success(await messages.explain(idIn(request), request.principal.reach)),
    }),
    get('/email/:message_id/transcript', {
      summary: 'The SMTP dialogue of each delivery attempt, without the message itself.',
      ok: okList(wire.transcriptSchema),
      handler: async (request) => successList(await messages.transcript(idIn(request), request.principal.reach)),
    }),
  ]
}

function actionRoutes(messages: Messages, note: Note): Route[] {
  return [
    post('/email/:message_id/cancel', {
      summary: 'Withdraws a message that waits.',
      ok: okData(wire.canceledSchema),
      errors: ['conflict'],
      async handler(request) {
        const canceled = await messages.cancel(idIn(request), request.principal.reach)
        note('message canceled', request, { message_id: canceled.message_id })
        return success(canceled)
      },
    }),
    post('/email/:message_id/retry', {
      summary: 'Tries a deferred message now, or sends a bounced or expired one again.',
      ok: okData(wire.retriedSchema),
      idempotency: 'with-message',
      errors: ['conflict', 'domain_not_verified', 'ip_not_warmed'],
      async handler(request) {
        const acceptance = await messages.retry(
          idIn(request),
          { caller: callerOf(request), reach: request.principal.reach },
          idempotent(request, (data) => ({ success: true, data })),
        )
        if (acceptance.kind === 'replayed') return replayedAnswer(request, acceptance)
        const { accepted } = acceptance
        note('message retried', request, { message_id: accepted.message_id })
        return success(accepted)
      },
    }),
    get('/email/batch/:batch_id', {
      summary: 'A batch with the states of its messages.',
      ok: okData(wire.batchSchema),
      handler: async (request) => success(await messages.batch(idIn(request), request.principal.reach)),
    }),
    post('/email/batch/:batch_id/cancel', {
      summary: 'Withdraws the messages of a batch that wait.',
      ok: okData(wire.canceledBatchSchema),
      async handler(request) {
        const canceled = await messages.cancelBatch(idIn(request), request.principal.reach)
        note('batch canceled', request, { batch_id: canceled.batch_id, messages: canceled.canceled })
        return success(canceled)
      },
    }),
  ]
}

function idIn({ params }: ApiRequest): string {
  return params['message_id'] ?? params['batch_id'] ?? ''
}
