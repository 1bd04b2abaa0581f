/**
 * `?limit=` and `?after=` of every list (contract.md 1).
 */
import { z } from 'zod'
import { optionalText } from './optional.ts'

export const DEFAULT_LIMIT = 50

/** A whole number from 1 to 100. */
const LIMIT = /^(?:[1-9]\d?|100)$/

export const listParameters = () => ({
  limit: z.string().regex(LIMIT, 'expected a whole number from 1 to 100').transform(Number).nullish(),
  /** `next_cursor` of the page before. */
  after: optionalText(),
})
