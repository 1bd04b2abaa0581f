/** API keys on the wire (http/README.md "Keys and scopes"). Only the answer to its creation holds a key itself. */
import { z } from 'zod'
import { identifier, paging, optionalText, textList, time, timeOrNull } from './fields.ts'

/** More than anybody needs in one key. */
const MOST_LIST_ENTRIES = 1_000

const scopeSchema = z.enum(['send', 'messages:read', 'domains', 'webhooks', 'ips', 'stats', 'suppressions', 'admin'])

const limits = {
  domains: textList(MOST_LIST_ENTRIES).nullish(),
  allowed_ips: textList(MOST_LIST_ENTRIES).nullish(),
  /** Unix seconds. */
  expires_at: z.int().nullish(),
}

export const createKeySchema = z.object({
  name: z.string(),
  mode: z.enum(['live', 'test']),
  scopes: textList(MOST_LIST_ENTRIES),
  ...limits,
})

export const changeKeySchema = z.object({ name: optionalText(), ...limits })

export const listKeysSchema = z.object(paging())

export const keySchema = z
  .object({
    id: identifier('key'),
    name: z.string(),
    mode: z.enum(['live', 'test']),
    scopes: z.array(scopeSchema),
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

export type CreateKeyBody = z.input<typeof createKeySchema>
export type KeyJson = z.infer<typeof keySchema>
export type CreatedKeyJson = z.infer<typeof createdKeySchema>
