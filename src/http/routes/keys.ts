/**
 * POST /keys (contract.md 3): the only answer that ever holds the key.
 */
import { toUnixSeconds } from '../../base/clock.ts'
import type { Logger } from '../../base/logger.ts'
import type { ApiKeys } from '../../senders/api-key.ts'
import type { HttpFeatures } from '../features.ts'
import { createKeySchema, refuseWidening, toCreateKeyRequest } from '../requests/key.ts'
import { route, success } from '../route.ts'
import type { Route } from '../route.ts'

const CREATED = 201

export function keyRoutes({ apiKeys }: HttpFeatures, logger: Logger): Route[] {
  return [
    route({
      method: 'POST',
      path: '/keys',
      scope: 'admin',
      body: createKeySchema,
      errors: ['forbidden', 'conflict'],
      async handler({ principal, requestId }, fields) {
        const request = toCreateKeyRequest(fields)
        refuseWidening(request, principal)
        const { key, record } = await apiKeys.create(request)
        logger.info({ key_id: record.id, request_id: requestId, api_key: principal.label }, 'key created')
        return success(CREATED, keyView(record, key))
      },
    }),
  ]
}

type ApiKeyRecord = Awaited<ReturnType<ApiKeys['create']>>['record']

function keyView(record: ApiKeyRecord, key: string): object {
  const { id, name, mode, scopes, domains, allowedIps, prefix, last4, createdAt, expiresAt } = record
  return {
    id, name, mode, scopes, domains, allowed_ips: allowedIps, prefix, last4, key,
    created_at: toUnixSeconds(createdAt),
    expires_at: expiresAt === null ? null : toUnixSeconds(expiresAt),
    last_used_at: null,
    revoked_at: null,
  }
}
