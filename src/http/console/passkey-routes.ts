/**
 * Passkeys in the console (http/README.md "Console"): those of whoever is logged in, and logging in with one. Requests
 * and answers are JSON as browsers make and take it.
 */
import { ServiceError } from '../../base/errors.ts'
import { toUnixSeconds } from '../../base/clock.ts'
import { sendJson, type RequestContext } from '../exchange/answer-request.ts'
import type { Authenticate } from '../exchange/authenticate.ts'
import type { BodyLimit, BodyReader } from '../exchange/body-reader.ts'
import type { Person } from '../exchange/logins.ts'
import type { Principal } from '../exchange/principal.ts'
import type { Note } from '../exchange/route.ts'
import { siteOf, type Passkeys } from '../exchange/passkeys.ts'

interface PasskeyRoutesOptions {
  passkeys: Passkeys
  bodies: BodyReader
  authenticate: Authenticate
  note: Note
}

const LIMIT: BodyLimit = { bytes: 16 * 1_024, code: 'payload_too_large' }
const MOST_AGENT_WORDS = 100

/** `/console/passkeys…`, with a session of a person. */
export function createPasskeyRoutes({ passkeys, bodies, authenticate, note }: PasskeyRoutesOptions) {
  const personIn = ({ person }: Principal): Person => {
    if (person === null) throw new ServiceError('forbidden', 'passkeys are for people, not for API keys')
    return person
  }
  return async (ctx: RequestContext, rest: string): Promise<void> => {
    const principal = await authenticate(ctx.req)
    const request = { requestId: ctx.state.requestId, principal }
    const person = personIn(principal)
    const what = `${ctx.method} ${rest}`
    if (what === 'POST options') return sendData(ctx, await passkeys.newOptions(person, siteOf(ctx.req)))
    if (what === 'POST ') {
      const label = ctx.get('User-Agent').slice(0, MOST_AGENT_WORDS)
      await passkeys.add(person, siteOf(ctx.req), await readJson(ctx, bodies), label)
      note('passkey added', request, { label })
    } else if (what === 'POST remove') {
      const { id } = (await readJson(ctx, bodies)) as { id?: unknown }
      const isRemoved = typeof id === 'string' && (await passkeys.remove(person, id))
      if (!isRemoved) throw new ServiceError('not_found', 'you have no such passkey')
      note('passkey removed', request, { passkey: id })
    } else if (what !== 'GET ') {
      throw new ServiceError('not_found', `path ${ctx.path}`)
    }
    const found = await passkeys.of(person)
    sendData(
      ctx,
      found.map(({ id, label, createdAt, usedAt }) => ({
        id,
        label,
        created_at: toUnixSeconds(createdAt),
        used_at: usedAt === null ? null : toUnixSeconds(usedAt),
      })),
    )
  }
}

/** What came, as JSON. ServiceError `invalid_request`. */
export async function readJson(ctx: RequestContext, bodies: BodyReader): Promise<object> {
  const body = await bodies.read(ctx.req, ctx.res, LIMIT)
  bodies.release(body.length)
  try {
    const value: unknown = JSON.parse(body.toString('utf8'))
    if (typeof value === 'object' && value !== null) return value
  } catch {
    // Told below.
  }
  throw new ServiceError('invalid_request', 'the body is no JSON object')
}

export function sendData(ctx: RequestContext, data: object): void {
  sendJson(ctx, 200, JSON.stringify({ success: true, data }))
}
