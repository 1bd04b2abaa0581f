/**
 * The `/dev` routes on a real HTTP server, with the layer outside that turns errors into the envelope.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import Koa, { type Middleware } from 'koa'
import { errorAnswer } from '../../src/http/exchange/error-responses.ts'

export interface DevServer {
  baseUrl: string
  get(path: string): Promise<DevAnswer>
  ask(method: string, path: string, options?: AskOptions): Promise<DevAnswer>
  close(): Promise<void>
}

export interface AskOptions {
  body?: string | Buffer
  headers?: Record<string, string>
}

export interface DevAnswer {
  status: number
  headers: Headers
  text: string
  /** `data` of a successful answer; the whole body of an error. */
  data: unknown
}

/** The routes are made once the port is known. */
export async function devServer(routes: (baseUrl: string) => Middleware): Promise<DevServer> {
  const server = createServer()
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const app = new Koa()
  app.silent = true
  app.use(async (ctx, next) => {
    try {
      await next()
    } catch (thrown) {
      const answer = errorAnswer(thrown, 'req_test')
      ctx.status = answer.status
      ctx.set(answer.headers)
      ctx.type = 'json'
      ctx.body = answer.body
    }
  })
  app.use(routes(baseUrl))
  app.use(async (ctx) => {
    ctx.body = 'the API'
  })
  server.on('request', app.callback())

  const ask: DevServer['ask'] = async (method, path, { body, headers = {} } = {}) => {
    const sent = typeof body === 'string' ? body : body === undefined ? undefined : new Uint8Array(body)
    const answer = await fetch(`${baseUrl}${path}`, { method, headers, ...(sent === undefined ? {} : { body: sent }) })
    const text = await answer.text()
    return { status: answer.status, headers: answer.headers, text, data: dataOf(text) }
  }
  return {
    baseUrl,
    ask,
    get: (path) => ask('GET', path),
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

function dataOf(text: string): unknown {
  try {
    const document = JSON.parse(text) as Record<string, unknown>
    return document['success'] === true ? document['data'] : document
  } catch {
    return undefined
  }
}
