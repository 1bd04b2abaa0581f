/**
 * The routes of API keys (http/README.md "Keys and scopes"). Only the answer to its creation holds a key.
 *
 * A key grants what it has itself and no more. Keys that may do more than the one that asks are unknown to it: it
 * neither sees nor changes them. Every change leaves a log line that says who asked for it.
 */
import { toUnixSeconds } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import type { Logger } from '../../base/logger.ts'
import { unknownKey } from '../../senders/api-key.ts'
import type { ApiKeyRecord } from '../../senders/api-key.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { isWithinGrants, refuseWidening } from './key-grants.ts'
import { changeKeySchema, createKeySchema, listKeysSchema, toCreateKeyRequest, toKeyChange } from '../requests/key.ts'
import { DEFAULT_LIMIT } from '../requests/list.ts'
import { createdKeySchema, keySchema } from '../responses/key.ts'
import {
  dataSchema,
  listSchema,
  route,
  routeWithoutBody,
  routeWithQuery,
  success,
  successList,
} from '../exchange/route.ts'
import type { ApiRequest, OkAnswer, Route } from '../exchange/route.ts'

const CREATED = 201
const OK = 200
const OK_KEY: OkAnswer = { status: OK, schema: dataSchema(keySchema) }

export function keyRoutes({ apiKeys }: HttpFeatures, logger: Logger): Route[] {
  const note: Note = (what, { requestId, principal }, { id }) =>
    logger.info({ key_id: id, request_id: requestId, api_key: principal.label }, what)
  return [...collectionRoutes(apiKeys, note), ...keyOwnRoutes(apiKeys, note)]
}

/** Writes who did what to which key. */
type Note = (what: string, request: ApiRequest, record: ApiKeyRecord) => void

/** /keys */
function collectionRoutes(apiKeys: HttpFeatures['apiKeys'], note: Note): Route[] {
  return [
    route({
      method: 'POST',
      path: '/keys',
      summary: 'Creates an API key and shows it this one time.',
      scope: 'admin',
      body: createKeySchema,
      ok: { status: CREATED, schema: dataSchema(createdKeySchema) },
      errors: ['conflict'],
      idempotency: 'after-answer',
      async handler(request, fields) {
        const given = toCreateKeyRequest(fields)
        refuseWidening(given, request.principal)
        const { key, record } = await apiKeys.create(given)
        note('key created', request, record)
        return success(CREATED, { ...keyView(record), key })
      },
    }),
    routeWithQuery({
      method: 'GET',
      path: '/keys',
      summary: 'Lists the API keys, revoked ones too, newest first.',
      scope: 'admin',
      query: listKeysSchema,
      ok: { status: OK, schema: listSchema(keySchema) },
      errors: [],
      async handler({ principal }, { limit, after }) {
        const { keys, next } = await apiKeys.list(limit ?? DEFAULT_LIMIT, after ?? null)
        return successList(keys.filter((record) => isWithinGrants(record, principal)).map(keyView), next)
      },
    }),
  ]
}

/** /keys/{id} */
function keyOwnRoutes(apiKeys: HttpFeatures['apiKeys'], note: Note): Route[] {
  const find = async ({ params, principal }: ApiRequest): Promise<ApiKeyRecord> => {
    const id = params['id'] ?? ''
    const record = await apiKeys.find(id)
    if (!isWithinGrants(record, principal)) throw unknownKey(id)
    return record
  }

  return [
    routeWithoutBody({
      method: 'GET',
      path: '/keys/:id',
      summary: 'One API key, without the key itself.',
      scope: 'admin',
      body: null,
      ok: OK_KEY,
      errors: ['not_found'],
      handler: async (request) => success(OK, keyView(await find(request))),
    }),
    route({
      method: 'PATCH',
      path: '/keys/:id',
      summary: 'Changes name, domains, addresses or expiry of an API key; never its scopes or mode.',
      scope: 'admin',
      body: changeKeySchema,
      ok: OK_KEY,
      errors: ['not_found'],
      async handler(request, fields) {
        const { principal } = request
        const { id, mode, domains, allowedIps } = await find(request)
        if (id === principal.apiKeyId) throw new ServiceError('forbidden', 'a key cannot change itself')
        const change = toKeyChange(fields)
        refuseWidening({ mode, domains, allowedIps, ...change }, principal)
        const record = await apiKeys.change(id, change)
        note('key changed', request, record)
        return success(OK, keyView(record))
      },
    }),
    routeWithoutBody({
      method: 'DELETE',
      path: '/keys/:id',
      summary: 'Revokes an API key at once.',
      scope: 'admin',
      body: null,
      ok: OK_KEY,
      errors: ['not_found', 'conflict'],
      async handler(request) {
        const { id } = await find(request)
        // Whoever may open the admin socket can make a new key at any time.
        const keepsAdmin = request.principal.apiKeyId !== null
        const record = await apiKeys.revoke(id, { keepsAdmin })
        note('key revoked', request, record)
        return success(OK, keyView(record))
      },
    }),
  ]
}

function keyView(record: ApiKeyRecord): object {
  const { id, name, mode, scopes, domains, allowedIps, prefix, last4 } = record
  return {
    id,
    name,
    mode,
    scopes,
    domains,
    allowed_ips: allowedIps,
    prefix,
    last4,
    created_at: toUnixSeconds(record.createdAt),
    expires_at: secondsOrNull(record.expiresAt),
    last_used_at: secondsOrNull(record.lastUsedAt),
    revoked_at: secondsOrNull(record.revokedAt),
  }
}

function secondsOrNull(milliseconds: number | null): number | null {
  return milliseconds === null ? null : toUnixSeconds(milliseconds)
}
