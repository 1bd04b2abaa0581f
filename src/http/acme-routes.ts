/**
 * `/.well-known/acme-challenge/<token>`: what an authority asks for before it issues a certificate (RFC 8555 §8.3), be it
 * one that `tls.acme` has us order, or what certbot, lego and others put into `http.acme_webroot`.
 *
 * Only files of that folder are given out, under names that a token can have: no other path, no link to a file
 * elsewhere, no list of what is there. Everything else is 404.
 */
import { constants } from 'node:fs'
import { open, realpath } from 'node:fs/promises'
import { join } from 'node:path'
import type { Middleware } from 'koa'
import { ServiceError } from '../base/errors.ts'
import type { RequestState } from './exchange/answer-request.ts'

const PREFIX = '/.well-known/acme-challenge/'
/** A token: base64url (RFC 8555 §8.3). */
const TOKEN = /^[A-Za-z0-9_-]{1,256}$/
/** A key authorization is shorter than 200 characters. */
const MOST_BYTES = 4 * 1024
const READING = ['GET', 'HEAD']

export function createAcmeRoutes(
  webroot: () => string | null,
  ofOurs: ReadonlyMap<string, string> = new Map(),
): Middleware<RequestState> {
  return async function acme(ctx, next) {
    if (!ctx.path.startsWith(PREFIX)) return next()
    ctx.state.pattern = `${PREFIX}:token`
    const folder = webroot()
    const token = ctx.path.slice(PREFIX.length)
    const isAsked = READING.includes(ctx.method) && TOKEN.test(token)
    const own = isAsked ? ofOurs.get(token) : undefined
    const content = own ?? (isAsked && folder !== null ? await readChallenge(folder, token) : null)
    if (content === null) throw new ServiceError('not_found', `path ${ctx.path}`)
    ctx.type = 'text/plain'
    ctx.body = content
  }
}

/** null: there is no such file, or it is none that is meant for others. */
async function readChallenge(webroot: string, token: string): Promise<Buffer | null> {
  try {
    const place = join('.well-known', 'acme-challenge')
    const folder = await realpath(join(webroot, place))
    // A link on the way would lead out of what the administrator named.
    if (folder !== join(await realpath(webroot), place)) return null
    const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants
    const file = await open(join(folder, token), O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    try {
      const status = await file.stat()
      return status.isFile() && status.size <= MOST_BYTES ? await file.readFile() : null
    } finally {
      await file.close()
    }
  } catch {
    // Missing, a link, or not ours to read: all the same to who asks.
    return null
  }
}
