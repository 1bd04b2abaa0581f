/**
 * The Koa application of one kind of listener: the layers in order, and nothing else.
 *
 * answer-request (outermost) · handlers handed over by the composition root · handle-request.
 */
import Koa from 'koa'
import type { Middleware } from 'koa'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'
import { sendJson, sendStream, sendText } from './exchange/answer-request.ts'
import type { RequestState } from './exchange/answer-request.ts'
import type { RequestHandler } from './exchange/handle-request.ts'

export interface AppOptions {
  answer: Middleware<RequestState>
  extraHandlers: readonly Middleware[]
  handleRequest: RequestHandler
  logger: Logger
  /** The server stops: ends what streams. */
  stopping: AbortSignal
}

/** The listener for node:http's `request` event. */
export function createApp(options: AppOptions): ReturnType<Koa['callback']> {
  const { answer, extraHandlers, handleRequest, logger, stopping } = options
  const app = new Koa<RequestState>()
  app.use(answer)
  for (const handler of extraHandlers) app.use(handler)
  app.use(async (ctx) => {
    const { status, body, stream } = await handleRequest(ctx)
    if (stream !== undefined) sendStream(ctx, status, { stream, stopping })
    else if (typeof body === 'string') sendText(ctx, status, body)
    else sendJson(ctx, status, JSON.stringify(body))
  })
  // Only errors after the answer was made arrive here: the client has gone.
  app.on('error', (error: unknown) => logger.debug({ error: errorText(error) }, 'answer not delivered'))
  return app.callback()
}
