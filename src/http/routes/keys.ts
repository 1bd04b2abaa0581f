/**
 * The routes of API keys (http/README.md "Keys and scopes"). Only the answer to its creation holds a key. Keys that may
 * do more than the one that asks are unknown to it: it neither sees nor changes them.
 */
import * as wire from '../../api/key.ts'
import { snakeFields, withoutNulls } from '../../api/names.ts'
import { SECOND, toUnixSeconds, secondsOrNull } from '../../base/clock.ts'
import { ServiceError } from '../../base/errors.ts'
import { isInNetwork } from '../../base/ip-address.ts'
import { unknownKey, type ApiKeyRecord } from '../../senders/api-key.ts'
import { readDomainName } from '../../senders/domain-name.ts'
import type { HttpFeatures } from '../exchange/features.ts'
import { isOnAdminSocket, type Principal } from '../exchange/principal.ts'
import { CREATED, okData, okList, success, successList } from '../exchange/answer.ts'
import { param, routesOf, type ApiRequest, type Note, type Route } from '../exchange/route.ts'
import { warnOfUnknownDomains } from './domains.ts'

const { get, post, patch, remove } = routesOf('admin')

const OK_KEY = okData(wire.keySchema)

export function keyRoutes(features: HttpFeatures, note: Note): Route[] {
  return [...collectionRoutes(features, note), ...keyOwnRoutes(features, note)]
}

/** /keys */
function collectionRoutes(features: HttpFeatures, note: Note): Route[] {
  const { apiKeys } = features
  return [
    post('/keys', {
      summary: 'Creates an API key and shows it this one time.',
      body: wire.createKeySchema,
      ok: okData(wire.createdKeySchema, CREATED),
      errors: ['conflict'],
      idempotency: 'after-answer',
      async handler(request, fields) {
        const { domains, allowedIps, expiresAt, ...rest } = fields
        const given = {
          ...rest,
          domains: domains ?? [],
          allowedIps: allowedIps ?? [],
          expiresAt: expiresAt === null ? null : expiresAt * SECOND,
        }
        refuseWidening(given, request.principal)
        refuseOutliving(given.expiresAt, request.principal)
        const { key, record } = await apiKeys.create(given)
        await warnOfUnknownDomains(features, request, record.domains)
        note('key created', request, { key_id: record.id })
        return success({ ...keyView(record), key }, CREATED)
      },
    }),
    get('/keys', {
      summary: 'Lists the API keys, revoked ones too, newest first.',
      query: wire.listKeysSchema,
      ok: okList(wire.keySchema),
      async handler({ principal }, { limit, after }) {
        const { keys, next } = await apiKeys.list(limit, after)
        return successList(keys.filter((record) => isWithinGrants(record, principal)).map(keyView), next)
      },
    }),
  ]
}

/** /keys/{id} */
function keyOwnRoutes(features: HttpFeatures, note: Note): Route[] {
  const { apiKeys } = features
  const find = async (request: ApiRequest): Promise<ApiKeyRecord> => {
    const id = param(request, 'id')
    const record = await apiKeys.find(id)
    if (!isWithinGrants(record, request.principal)) throw unknownKey(id)
    return record
  }

  return [
    get('/keys/:id', {
      summary: 'One API key, without the key itself.',
      ok: OK_KEY,
      handler: async (request) => success(keyView(await find(request))),
    }),
    patch('/keys/:id', {
      summary: 'Changes name, domains, addresses or expiry of an API key; never its scopes or mode.',
      body: wire.changeKeySchema,
      ok: OK_KEY,
      errors: ['conflict'],
      async handler(request, { expiresAt, ...fields }) {
        const { principal } = request
        const found = await find(request)
        const { id } = found
        if (id === principal.apiKeyId) throw new ServiceError('forbidden', 'a key cannot change itself')
        const change = withoutNulls({ ...fields, expiresAt: expiresAt === null ? null : expiresAt * SECOND })
        const changed = { ...found, ...change }
        refuseWidening(changed, principal)
        if (change.expiresAt !== undefined || !isWithinGrants(changed, found)) {
          refuseOutliving(changed.expiresAt, principal)
        }
        const record = await apiKeys.change(id, change, { keepsAdmin: keepsAdmin(principal) })
        await warnOfUnknownDomains(features, request, change.domains ?? [])
        note('key changed', request, { key_id: record.id })
        return success(keyView(record))
      },
    }),
    remove('/keys/:id', {
      summary: 'Revokes an API key at once.',
      ok: OK_KEY,
      errors: ['conflict'],
      async handler(request) {
        const { id } = await find(request)
        const record = await apiKeys.revoke(id, { keepsAdmin: keepsAdmin(request.principal) })
        note('key revoked', request, { key_id: record.id })
        return success(keyView(record))
      },
    }),
  ]
}

/** Whoever may open the admin socket can make a new key at any time. */
const keepsAdmin = (principal: Principal): boolean => !isOnAdminSocket(principal)

function keyView({ id, name, mode, scopes, domains, allowedIps, prefix, last4, ...times }: ApiKeyRecord): object {
  return {
    ...snakeFields({ id, name, mode, scopes, domains, allowedIps, prefix, last4 }),
    created_at: toUnixSeconds(times.createdAt),
    expires_at: secondsOrNull(times.expiresAt),
    last_used_at: secondsOrNull(times.lastUsedAt),
    revoked_at: secondsOrNull(times.revokedAt),
  }
}

/**
 * A key grants only what it has itself: its mode, its sending domains, the addresses it may be used from. An empty list
 * means "all". Scopes need no look: only `admin` makes keys, and has them all.
 */
type Grants = Pick<ApiKeyRecord, 'mode' | 'domains' | 'allowedIps'>

/** Throws ServiceError `forbidden` when the key could do what its maker cannot. */
function refuseWidening(asked: Grants, maker: Principal): void {
  const problems = wideningProblems(asked, maker)
  if (problems.length > 0) throw new ServiceError('forbidden', problems.join('; '))
}

/** What a key grants ends with it at the latest. */
function refuseOutliving(expiresAt: number | null, maker: Principal): void {
  if (maker.expiresAt === null || (expiresAt !== null && expiresAt <= maker.expiresAt)) return
  throw new ServiceError('forbidden', 'expires_at: later than that of this key')
}

function isWithinGrants(asked: Grants, maker: Grants): boolean {
  return wideningProblems(asked, maker).length === 0
}

function wideningProblems(asked: Grants, maker: Grants): string[] {
  const problems: string[] = []
  if (maker.mode === 'test' && asked.mode === 'live') problems.push('mode: a test key makes test keys only')
  const hasDomain = (text: string): boolean => {
    const reading = readDomainName(text)
    return reading.ok && maker.domains.includes(reading.name)
  }
  if (isWider(asked.domains, maker.domains, hasDomain)) problems.push('domains: more than the domains of this key')
  const hasNetwork = (network: string): boolean => isWithin(network, maker.allowedIps)
  if (isWider(asked.allowedIps, maker.allowedIps, hasNetwork)) {
    problems.push('allowed_ips: more than the addresses of this key')
  }
  return problems
}

function isWider(asked: readonly string[], own: readonly string[], has: (entry: string) => boolean): boolean {
  return own.length > 0 && (asked.length === 0 || !asked.every(has))
}

/** True when the network lies in one of `networks`: its address does, and its prefix is not shorter. */
function isWithin(network: string, networks: readonly string[]): boolean {
  const [address = ''] = network.split('/')
  return networks.some((outer) => isInNetwork(address, outer) && prefixLength(network) >= prefixLength(outer))
}

/** A single address counts as the longest prefix. */
function prefixLength(network: string): number {
  const length = network.split('/')[1]
  return length === undefined ? Number.POSITIVE_INFINITY : Number(length)
}
