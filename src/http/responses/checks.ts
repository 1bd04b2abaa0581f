/**
 * What the checks found, as JSON. Times are Unix seconds.
 */
import { z } from 'zod'
import { RESULTS } from '../../health/checks/finding.ts'
import { textOrNull, timeOrNull } from './fields.ts'

export const checksSchema = z.object({
  ran_at: timeOrNull(),
  checks: z.array(
    z.object({
      check: z.string(),
      subject: textOrNull(),
      family: z.union([z.literal(4), z.literal(6)]).nullable(),
      result: z.enum(RESULTS),
      seen: z.string(),
      why: z.string(),
      fix: textOrNull(),
      last_ok_at: timeOrNull(),
    }),
  ),
})

export type ChecksAnswer = z.infer<typeof checksSchema>
