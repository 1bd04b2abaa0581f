/**
 * What GET /health answers (http/README.md "Health, metrics, OpenAPI").
 */
import { z } from 'zod'
import { count } from './fields.ts'

export const healthSchema = z
  .object({
    status: z.enum(['ok', 'degraded']),
    queue_depth: count(),
    oldest_due_seconds: z.number(),
    db: z.string(),
    smtp_out: z.string(),
  })
  .meta({ id: 'Health' })
