/**
 * What the suppression routes answer (http/README.md "Suppressions").
 */
import { z } from 'zod'
import { count, identifier, time } from './fields.ts'

export const reasonSchema = z.enum(['hard_bounce', 'complaint', 'unsubscribe', 'manual'])

export const suppressionSchema = z
  .object({
    id: identifier('sup'),
    email: z.string(),
    reason: reasonSchema,
    scope: z.string(),
    message_id: identifier('msg').nullable(),
    created_at: time(),
  })
  .meta({ id: 'Suppression' })

export const removedSuppressionsSchema = z.object({ email: z.string(), deleted: count() })

export const importedSchema = z.object({
  added: count(),
  existing: count(),
  rejected: count(),
  /** The first 100. */
  errors: z.array(z.string()),
})
