/**
 * What mail leads back to: pixels, links, unsubscribing (http/README.md "Tracked links" and "Unsubscribe"), on paths of
 * their own, without a key; every other path goes on.
 *
 * A GET changes nothing but counts of hits; HEAD, and requests that only fetch in advance, count nothing. No host name
 * and no target is ever taken from a request; no cookie is set.
 */
import type { Middleware } from 'koa'
import { domainToAscii } from '../../mail/address.ts'
import type { Client } from '../../messages/engagement/machine-hits.ts'
import type { RequestContext, RequestState } from '../exchange/answer-request.ts'
import type { BodyLimit, BodyReader } from '../exchange/body-reader.ts'
import { clientAddress } from '../exchange/client-address.ts'
import type { TrackingFeatures } from '../exchange/features.ts'
import { splitTarget } from '../exchange/route-table.ts'
import * as pages from './tracking-pages.ts'

interface TrackingRoutesOptions {
  features: TrackingFeatures
  bodies: BodyReader
  trustedProxies: readonly string[]
  /** Where abuse is reported, or null. */
  abuseAddress: string | null
}

interface TrackingRoute {
  /** For metrics: without the token. */
  pattern: string
  methods: readonly string[]
  handle(ctx: RequestContext, token: string): Promise<void> | void
}

/** A transparent pixel, GIF89a. */
const PIXEL = Buffer.from('R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAICRAEAOw==', 'base64')
const FORM_LIMIT: BodyLimit = { bytes: 4 * 1024, code: 'payload_too_large' }
const MOST_USER_AGENT_CHARACTERS = 500
// A tracking path: which one, and its token.
const TOKEN_PATH = /^\/([ocu])\/([^/]*)\/?$/
const READING = ['GET', 'HEAD']

export function createTrackingRoutes(options: TrackingRoutesOptions): Middleware<RequestState> {
  const routes = tokenRoutes(options)
  const about = pages.aboutPage(options.abuseAddress)
  const fixedRoutes: Readonly<Record<string, TrackingRoute>> = {
    '/': { pattern: '/', methods: READING, handle: (ctx) => sendPage(ctx, about) },
    '/robots.txt': { pattern: '/robots.txt', methods: READING, handle: sendRobots },
  }

  return function tracking(ctx, next) {
    const { path } = splitTarget(ctx.req.url ?? '')
    const [, letter = '', token = ''] = path[2] === '/' ? (TOKEN_PATH.exec(path) ?? []) : []
    const route = letter === '' ? ownEntry(fixedRoutes, path) : ownEntry(routes, letter)
    if (route === undefined) return next()
    ctx.state.pattern = route.pattern
    ctx.res.setHeader('X-Robots-Tag', 'noindex')
    if (route.methods.includes(ctx.method)) return route.handle(ctx, token)
    ctx.res.setHeader('Allow', route.methods.join(', '))
    return sendPage(ctx, pages.METHOD_NOT_ALLOWED)
  }
}

function tokenRoutes({ features, bodies, trustedProxies }: TrackingRoutesOptions): Record<string, TrackingRoute> {
  const { engagement, unsubscribing } = features
  /** null: the request counts nothing. */
  const clientOf = (ctx: RequestContext): Client | null => {
    if (ctx.method === 'HEAD' || isPrefetch(ctx)) return null
    const userAgent = ctx.get('User-Agent').slice(0, MOST_USER_AGENT_CHARACTERS)
    return { address: clientAddress(ctx.req, trustedProxies), userAgent }
  }
  const sendPixel = (ctx: RequestContext, token: string): void => {
    engagement.open(token, clientOf(ctx))
    ctx.res.setHeader('Cache-Control', 'no-store, private')
    ctx.res.setHeader('Content-Type', 'image/gif')
    ctx.body = PIXEL
  }
  const redirect = async (ctx: RequestContext, token: string): Promise<void> => {
    const answer = await engagement.click(token, clientOf(ctx))
    if (answer.kind !== 'redirect') return sendPage(ctx, answer.kind === 'gone' ? pages.GONE_LINK : pages.UNKNOWN_LINK)
    ctx.status = 302
    ctx.res.setHeader('Location', headerText(answer.target))
    ctx.body = ''
  }
  const unsubscribe = async (ctx: RequestContext, token: string): Promise<void> => {
    if (!unsubscribing.isUnsubscribeToken(token)) return sendPage(ctx, pages.UNKNOWN_UNSUBSCRIBE)
    if (ctx.method !== 'POST') return sendPage(ctx, pages.UNSUBSCRIBE_FORM)
    const body = await bodies.read(ctx.req, ctx.res, FORM_LIMIT)
    bodies.release(body.length)
    if (!isOneClickForm(body, ctx.get('Content-Type'))) return sendPage(ctx, pages.INCOMPLETE_FORM)
    sendPage(ctx, (await unsubscribing.unsubscribe(token)) ? pages.UNSUBSCRIBED : pages.UNKNOWN_UNSUBSCRIBE)
  }
  return {
    o: { pattern: '/o/:token', methods: READING, handle: sendPixel },
    c: { pattern: '/c/:token', methods: READING, handle: redirect },
    u: { pattern: '/u/:token', methods: [...READING, 'POST'], handle: unsubscribe },
  }
}

function ownEntry(routes: Readonly<Record<string, TrackingRoute>>, key: string): TrackingRoute | undefined {
  return Object.hasOwn(routes, key) ? routes[key] : undefined
}

/** What browsers and proxies say when they load a page that nobody has asked for yet. */
function isPrefetch(ctx: RequestContext): boolean {
  return ['Purpose', 'Sec-Purpose', 'X-Moz'].some((name) => /^\s*prefetch\b/i.test(ctx.get(name)))
}

// What stands before the host of a URL (its scheme, perhaps a user), and a host that has more than ASCII.
const UNICODE_HOST = /^(https?:\/\/(?:[^/?#\\]*@)?)([^/?#\\@:]*[^\0-\x7f][^/?#\\@:]*)/i

/**
 * A target as a header takes it: its bytes, but a Unicode host as A-labels, and what is not visible US-ASCII
 * percent-encoded as UTF-8 (RFC 3986 §2.5, RFC 9110 §5.5), as browsers do. So no line end and no control character gets
 * there.
 */
function headerText(target: string): string {
  const named = target.replace(UNICODE_HOST, (_, before, host) => `${before}${domainToAscii(host) ?? host}`)
  return named.replace(/[^\x21-\x7e]+/g, (text) =>
    [...Buffer.from(text)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  )
}

function sendPage(ctx: RequestContext, { status, html }: pages.Page): void {
  ctx.status = status
  ctx.res.setHeader('Content-Type', 'text/html; charset=utf-8')
  ctx.res.setHeader('Content-Security-Policy', pages.PAGE_POLICY)
  ctx.res.setHeader('X-Content-Type-Options', 'nosniff')
  ctx.res.setHeader('Referrer-Policy', 'no-referrer')
  ctx.body = html
}

function sendRobots(ctx: RequestContext): void {
  ctx.res.setHeader('Content-Type', 'text/plain; charset=utf-8')
  ctx.body = 'User-agent: *\nDisallow: /\n'
}

const ONE_CLICK_FIELD = 'List-Unsubscribe'
const ONE_CLICK_VALUE = 'One-Click'
// The boundary of a multipart type, with or without quotes.
const BOUNDARY = /^multipart\/form-data\s*;.*\bboundary=(?:"([^"]+)"|([^\s;"]+))/i
// The name of a part (RFC 7578 §4.2).
const PART_NAME = /^content-disposition:[^\r\n]*;\s*name="?([^"\r\n;]*)"?/im

/** The form of RFC 8058 §3.1: `List-Unsubscribe=One-Click`, as a form or in multipart. Never throws. */
function isOneClickForm(body: Buffer, contentType: string | undefined): boolean {
  const text = body.toString('latin1')
  const [, quoted, plain] = BOUNDARY.exec(contentType ?? '') ?? []
  const boundary = quoted ?? plain
  if (boundary === undefined) return new URLSearchParams(text).get(ONE_CLICK_FIELD)?.trim() === ONE_CLICK_VALUE
  return text.split(`--${boundary}`).some((part) => {
    const end = part.search(/\r?\n\r?\n/)
    const [, name] = PART_NAME.exec(part.slice(0, Math.max(0, end))) ?? []
    return name === ONE_CLICK_FIELD && part.slice(end).trim() === ONE_CLICK_VALUE
  })
}
