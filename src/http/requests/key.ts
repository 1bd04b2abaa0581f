/**
 * The JSON and the query parameters of the key routes (http/README.md "Keys and scopes"). The rules about the values
 * are those of `senders`.
 */
import { z } from 'zod'
import { SECOND } from '../../base/clock.ts'
import type { ApiKeyChange, CreateKeyRequest } from '../../senders/api-key.ts'
import { listParameters } from './list.ts'
import { optionalText, textList } from './optional.ts'

/** More than anybody needs in one key; keeps a hostile body cheap. */
const MOST_LIST_ENTRIES = 1_000

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

export const listKeysSchema = z.object(listParameters())

export function toCreateKeyRequest(fields: z.infer<typeof createKeySchema>): CreateKeyRequest {
  const { name, mode, scopes, domains, allowed_ips: allowedIps, expires_at: expiresAt } = fields
  return {
    name,
    mode,
    scopes,
    domains: domains ?? [],
    allowedIps: allowedIps ?? [],
    expiresAt: typeof expiresAt === 'number' ? expiresAt * SECOND : null,
  }
}

/** What is absent or null stays as it is. */
export function toKeyChange(fields: z.infer<typeof changeKeySchema>): ApiKeyChange {
  const { name, domains, allowed_ips: allowedIps, expires_at: expiresAt } = fields
  const change: ApiKeyChange = {}
  if (typeof name === 'string') change.name = name
  if (Array.isArray(domains)) change.domains = domains
  if (Array.isArray(allowedIps)) change.allowedIps = allowedIps
  if (typeof expiresAt === 'number') change.expiresAt = expiresAt * SECOND
  return change
}
