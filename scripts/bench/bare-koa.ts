/**
 * A Koa server that reads a JSON body and answers, and stores nothing: what durable acceptance is held against. A
 * process of its own; tells its port to the bench and ends with it.
 */
import type { IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import Router from '@koa/router'
import Koa from 'koa'

const router = new Router()
router.post('/v1/email/send', async (ctx) => {
  const message: unknown = JSON.parse(await bodyOf(ctx.req))
  ctx.body = { success: typeof message === 'object', message_id: 'msg_01kapg6t3vq8x2m5r7w9y4c6de', status: 'queued' }
})
const server = new Koa().use(router.routes()).listen(0, '127.0.0.1', () => {
  process.send?.((server.address() as AddressInfo).port)
})
process.once('disconnect', () => process.exit(0))

async function bodyOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  return Buffer.concat(chunks).toString('utf8')
}
