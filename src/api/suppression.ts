/** The suppression list on the wire (http/README.md "Suppressions"). */
import { z } from 'zod'
import { count, identifier, paging, optionalText, textOrNull, time, timeParameter } from './fields.ts'
import type { CamelFields } from './names.ts'

export const addSuppressionSchema = z.object({
  email: z.string(),
  reason: optionalText(),
  scope: optionalText(),
  domain: optionalText(),
})

export const listSuppressionsSchema = z.object({
  email: optionalText(),
  reason: optionalText(),
  scope: optionalText(),
  since: timeParameter(),
  ...paging(),
})

export const removeSuppressionSchema = z.object({ scope: optionalText() })

export const reasonSchema = z.enum(['hard_bounce', 'complaint', 'unsubscribe', 'manual'])

export const suppressionSchema = z
  .object({
    id: identifier('sup'),
    email: z.string(),
    reason: reasonSchema,
    scope: z.string(),
    domain: textOrNull(),
    message_id: identifier('msg').nullable(),
    created_at: time(),
  })
  .meta({ id: 'Suppression' })

export const removedSuppressionsSchema = z.object({ email: z.string(), deleted: count() })

export const importedSuppressionsSchema = z.object({
  added: count(),
  existing: count(),
  rejected: count(),
  /** The first 100. */
  errors: z.array(z.string()),
})

/** As it came; null: not asked for. */
export type SuppressionQuery = CamelFields<z.infer<typeof listSuppressionsSchema>>
export type SuppressionJson = z.infer<typeof suppressionSchema>
export type ImportedSuppressionsJson = z.infer<typeof importedSuppressionsSchema>
