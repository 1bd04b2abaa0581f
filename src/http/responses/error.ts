/**
 * The envelope of every error (service-interface.txt, Errors; http/README.md "Errors").
 */
import { z } from 'zod'
import { SERVICE_ERROR_CODES } from '../../base/errors.ts'

export const errorSchema = z
  .object({
    success: z.literal(false),
    error: z.object({ code: z.enum(SERVICE_ERROR_CODES), message: z.string(), details: z.string() }),
  })
  .meta({ id: 'Error' })
