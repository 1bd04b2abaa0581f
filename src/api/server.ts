/**
 * The server itself and its data on the wire: version, log level, reload, storage, backups, what is stored about
 * somebody. For administrators: no part of the contract. Times are Unix seconds.
 */
import { z } from 'zod'
import { count, optionalText, paging, textOrNull, time } from './fields.ts'

/** Debug lines of a busy server fill a journal: a day is the longest anybody looks on. */
const LONGEST_SECONDS = 86_400
export const LOG_LEVELS = ['debug', 'info', 'warn', 'error'] as const

export const runningServerSchema = z.object({
  version: z.string(),
  node: z.string(),
  started_at: time(),
  revision: z.int().min(1),
})

export const logLevelSchema = z.object({
  level: z.enum(LOG_LEVELS),
  for_seconds: z.int().min(1).max(LONGEST_SECONDS).nullish(),
})

export const raisedLogLevelSchema = z.object({ level: z.enum(LOG_LEVELS), until: time() })

export const reloadSchema = z.object({ dry_run: z.boolean().nullish() })

export const reloadResultSchema = z.object({
  applied: z.boolean(),
  revision: z.int().min(1),
  duration_ms: count(),
  changes: z.array(
    z.object({
      kind: z.enum(['added', 'removed', 'changed', 'restart']),
      what: z.string(),
      from: textOrNull(),
      to: textOrNull(),
      pool: textOrNull(),
    }),
  ),
  lines: z.array(z.string()),
  moved: z.array(z.object({ pool: z.string(), messages: count() })),
  mistakes: z.array(
    z.object({
      file: z.string(),
      line: count(),
      column: count(),
      path: z.string(),
      severity: z.enum(['error', 'warning']),
      message: z.string(),
      suggestion: textOrNull(),
    }),
  ),
})

export const beginBackupSchema = z.object({ to: optionalText() })

export const exportRecipientSchema = z.object({ after: optionalText() })

export const findUnmatchedReportsSchema = z.object({ limit: paging().limit })

/** A bounce or complaint that names none of our messages. */
export const unmatchedReportSchema = z.object({
  at: time(),
  kind: z.string(),
  /** As given in MAIL FROM and RCPT TO. */
  sender: z.string(),
  recipient: z.string(),
  remote_address: z.string(),
  /** Its first 16 KiB. */
  source: z.string(),
})

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

const backupSchema = z.object({
  path: z.string(),
  bytes: count(),
  made_at: time(),
  schema: count(),
  sealed_acme_keys: count().nullable(),
})

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

const certificateSchema = z.object({
  name: z.string(),
  names: z.array(z.string()),
  source: z.enum(['acme', 'file']),
  file: textOrNull(),
  authority: textOrNull(),
  ends_at: time().nullable(),
  renews_at: time().nullable(),
  problem: textOrNull(),
  fix: textOrNull(),
  next_try_at: time().nullable(),
  keeps_key: z.boolean(),
  tlsa: textOrNull(),
})

export const certificatesSchema = z.object({ certificates: z.array(certificateSchema) })

export const renewCertificateSchema = z.object({ new_key: z.boolean().nullish() })

export const renewingCertificateSchema = z.object({ name: z.string(), renewing: z.boolean() })

export const recipientDataSchema = z.object({
  messages: z.array(z.looseObject({ message_id: z.string() })),
  suppressions: z.array(z.looseObject({ id: z.string() })),
  next_cursor: textOrNull(),
})

export const erasedRecipientSchema = z.object({
  messages: count(),
  canceled: count(),
  /** Are being sent just now, and were left: once more when they have ended. */
  sending: count(),
  /** Rows beside messages. */
  others: count(),
})

export type RunningServerJson = z.infer<typeof runningServerSchema>
export type ReloadResultJson = z.infer<typeof reloadResultSchema>
export type StorageJson = z.infer<typeof storageSchema>
export type BackupJson = z.infer<typeof backupSchema>
export type BackupsJson = z.infer<typeof backupsSchema>
export type CertificateJson = z.infer<typeof certificateSchema>
export type CertificatesJson = z.infer<typeof certificatesSchema>
export type RecipientDataJson = z.infer<typeof recipientDataSchema>
export type UnmatchedReportJson = z.infer<typeof unmatchedReportSchema>
export type ErasedRecipientJson = z.infer<typeof erasedRecipientSchema>
