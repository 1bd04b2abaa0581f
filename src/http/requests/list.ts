/**
 * `?limit=` and `?after=` of every list (http/README.md "Conventions").
 */
import { z } from 'zod'
import { optionalText } from './optional.ts'

export const DEFAULT_LIMIT = 50

/** A whole number from 1 to 100. */
const LIMIT = /^(?:[1-9]\d?|100)$/

const limit = z
  .custom<string>((value) => typeof value === 'string' && LIMIT.test(value), 'expected a whole number from 1 to 100')
  .meta({ type: 'integer', minimum: 1, maximum: 100, default: DEFAULT_LIMIT })

export const listParameters = () => ({
  limit: limit.transform(Number).nullish(),
  /** `next_cursor` of the page before. */
  after: optionalText(),
})

/** Unix seconds in a query. */
const SECONDS = /^\d{1,12}$/

export const timeParameter = () =>
  z
    .custom<string>((value) => typeof value === 'string' && SECONDS.test(value), 'expected a Unix time in seconds')
    .meta({ type: 'integer' })
    .transform(Number)
    .nullish()
