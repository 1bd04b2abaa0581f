/**
 * What the key routes answer (http/README.md "Keys and scopes"): the key itself only once, in the answer to its
 * creation.
 */
import { z } from 'zod'
import { SCOPES } from '../../senders/api-key.ts'
import { identifier, time, timeOrNull } from './fields.ts'

export const keySchema = z
  .object({
    id: identifier('key'),
    name: z.string(),
    mode: z.enum(['live', 'test']),
    scopes: z.array(z.enum(SCOPES)),
    domains: z.array(z.string()),
    allowed_ips: z.array(z.string()),
    prefix: z.enum(['sk_live_', 'sk_test_']),
    last4: z.string(),
    created_at: time(),
    expires_at: timeOrNull(),
    last_used_at: timeOrNull(),
    revoked_at: timeOrNull(),
  })
  .meta({ id: 'Key' })

/** `key` is missing in a replay of the same request. */
export const createdKeySchema = z.object({ ...keySchema.shape, key: z.string().optional() }).meta({ id: 'CreatedKey' })
