/**
 * The JSON and the query parameters of the suppression routes (http/README.md "Suppressions"). The rules about
 * addresses, reasons and scopes are those of `messages`.
 */
import { z } from 'zod'
import type { Suppressions } from '../../messages/suppressions/suppressions.ts'
import { DEFAULT_LIMIT, listParameters, timeParameter } from './list.ts'
import { optionalText } from './optional.ts'

export const addSuppressionSchema = z.object({ email: z.string(), reason: optionalText(), scope: optionalText() })

export const listSuppressionsSchema = z.object({
  email: optionalText(),
  reason: optionalText(),
  scope: optionalText(),
  since: timeParameter(),
  ...listParameters(),
})

export const removeSuppressionSchema = z.object({ scope: optionalText() })

export function toGivenSuppression(fields: z.infer<typeof addSuppressionSchema>): Parameters<Suppressions['add']>[0] {
  return { email: fields.email, reason: fields.reason ?? undefined, scope: fields.scope ?? undefined }
}

export function toSuppressionQuery({
  email,
  reason,
  scope,
  since,
  limit,
  after,
}: z.infer<typeof listSuppressionsSchema>): Parameters<Suppressions['list']>[0] {
  return {
    email: email ?? null,
    reason: reason ?? null,
    scope: scope ?? null,
    since: since ?? null,
    limit: limit ?? DEFAULT_LIMIT,
    after: after ?? null,
  }
}
