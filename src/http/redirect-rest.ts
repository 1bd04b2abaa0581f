/**
 * Listeners that serve `redirect`: whatever nothing else on them answers goes to https under `public_url`.
 *
 * The host of the request is never used: nobody can be led elsewhere through us. Only what a browser fetches is
 * redirected; a request with a body has crossed the network in plain text already, and gets 404.
 */
import type { Middleware } from 'koa'
import type { RequestState } from './exchange/answer-request.ts'

const PERMANENT = 308
const READING = ['GET', 'HEAD']
/** Of the API, where that is served here too. */
const API_PATH = /^\/(?:(?:api\/)?v1(?:\/|$)|health$|metrics$|dev(?:\/|$))/

export function createRedirectRest(publicUrl: string, { hasApi }: { hasApi: boolean }): Middleware<RequestState> {
  const { host } = new URL(publicUrl)
  return async function redirect(ctx, next) {
    // A target such as `*` is no path: behind the host it would become part of the name.
    const isPage = READING.includes(ctx.method) && ctx.url.startsWith('/')
    if (!isPage || (hasApi && API_PATH.test(ctx.path))) return next()
    ctx.state.pattern = 'redirect'
    ctx.status = PERMANENT
    // As a header takes it: Node refuses a request target with anything else.
    ctx.res.setHeader('Location', `https://${host}${ctx.url}`)
    ctx.body = ''
  }
}
