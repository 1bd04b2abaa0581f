/** How the server is, and what its checks found (http/README.md "Health, metrics, OpenAPI"). */
import { z } from 'zod'
import { count, optionalText, textOrNull, timeOrNull } from './fields.ts'

export const healthSchema = z
  .object({
    status: z.enum(['ok', 'degraded']),
    queue_depth: count(),
    oldest_due_seconds: z.number(),
    db: z.string(),
    /** `ok`, or why no mail is taken. */
    mail_in: z.string(),
    smtp_out: z.string(),
  })
  .meta({ id: 'Health' })

export const runChecksSchema = z.object({
  /** Ids of checks; all when left out. */
  checks: z.array(z.string()).min(1).max(50).nullish(),
  ip: optionalText(),
  domain: optionalText(),
})

export const checksSchema = z.object({
  ran_at: timeOrNull(),
  checks: z.array(
    z.object({
      check: z.string(),
      subject: textOrNull(),
      family: z.union([z.literal(4), z.literal(6)]).nullable(),
      result: z.enum(['ok', 'warn', 'fail', 'skip']),
      seen: z.string(),
      why: z.string(),
      fix: textOrNull(),
      last_ok_at: timeOrNull(),
    }),
  ),
})

export type HealthJson = z.infer<typeof healthSchema>
export type ChecksJson = z.infer<typeof checksSchema>
