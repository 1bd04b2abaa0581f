/**
 * Storage, backups and what is stored about somebody, as JSON. Times are Unix seconds.
 */
import { z } from 'zod'
import { count, textOrNull, time } from './fields.ts'

export const storageSchema = z.object({
  file_bytes: count(),
  used_bytes: count(),
  log_bytes: count(),
  free_bytes: count(),
  kinds: z.array(z.object({ kind: z.string(), bytes: count() })),
  growth_per_day: z.int().nullable(),
  days_left: count().nullable(),
  budget_bytes: count().nullable(),
})

const backupSchema = z.object({ path: z.string(), bytes: count(), made_at: time(), schema: count() })

export const backupsSchema = z.object({
  running: z.object({ stage: z.string(), done_bytes: count(), total_bytes: count() }).nullable(),
  last: z
    .object({
      problem: textOrNull(),
      backup: backupSchema.nullable(),
      ms: count().nullable(),
      messages: count().nullable(),
    })
    .nullable(),
  backups: z.array(backupSchema),
})

export const startedBackupSchema = z.object({ started: z.boolean() })

export const recipientDataSchema = z.object({
  messages: z.array(z.looseObject({ message_id: z.string() })),
  suppressions: z.array(z.looseObject({ id: z.string() })),
  next_cursor: textOrNull(),
})

export const erasedRecipientSchema = z.object({
  messages: count(),
  canceled: count(),
  sending: count(),
  others: count(),
})
