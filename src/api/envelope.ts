/** What stands around every answer but the send results (http/README.md "Conventions" and "Errors"). */
import { z } from 'zod'
import { SERVICE_ERROR_CODES } from '../base/errors.ts'

export const errorSchema = z
  .object({
    success: z.literal(false),
    error: z.object({ code: z.enum(SERVICE_ERROR_CODES), message: z.string(), details: z.string() }),
  })
  .meta({ id: 'Error' })

export function dataSchema<Data extends z.ZodType>(data: Data) {
  return z.object({ success: z.literal(true), data })
}

export function listSchema<Entry extends z.ZodType>(entry: Entry) {
  return z.object({
    success: z.literal(true),
    data: z.array(entry),
    has_more: z.boolean(),
    next_cursor: z.string().nullable(),
  })
}
