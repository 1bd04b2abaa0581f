/** Fields that many requests and answers have (http/README.md "Conventions"). */
import { z } from 'zod'
import { isPlainObject } from '../base/plain-object.ts'

// Of requests: optional ones may be null, which is the same as absent.

export const optionalText = () => z.string().nullish()

/** A list of strings; `most` keeps a hostile body cheap. */
export const textList = (most: number) => z.array(z.string()).max(most)

/** An object with keys of the caller's choice, handed on as it came; `values` says in OpenAPI what they may be. */
export const freeObject = (values: true | { type: 'string' }) =>
  z
    .custom<Record<string, unknown>>((value) => isPlainObject(value) || isEmptyList(value), 'expected an object')
    .meta({ type: 'object', additionalProperties: values })

/** So PHP writes an empty object. */
export function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0
}

/** Verify, resume, rotate: everything is said by the path. */
export const noFieldsSchema = z.object({})

/** A whole number that may be left out; `expected` has its unit. */
export const optionalInteger = (expected: string) =>
  z
    .custom<number>((value) => Number.isSafeInteger(value), `expected ${expected}`)
    .meta({ type: 'integer' })
    .nullish()

const DEFAULT_LIMIT = 50

/** A whole number in a query, which is text. */
export function numberParameter(pattern: RegExp, expected: string, bounds: object = {}) {
  return z
    .custom<string>((value) => typeof value === 'string' && pattern.test(value), `expected ${expected}`)
    .meta({ type: 'integer', ...bounds })
}

/** `?limit=` and `?after=` of every list. */
export const paging = () => ({
  limit: numberParameter(/^(?:[1-9]\d?|100)$/, 'a whole number from 1 to 100', {
    minimum: 1,
    maximum: 100,
    default: DEFAULT_LIMIT,
  })
    .nullish()
    .transform((text) => Number(text ?? DEFAULT_LIMIT)),
  after: optionalText().meta({ description: '`next_cursor` of the page before.' }),
})

/** Unix seconds in a query. */
export const timeParameter = () =>
  numberParameter(/^\d{1,12}$/, 'a Unix time in seconds')
    .transform(Number)
    .nullish()

// Of answers: the schemas stand in the OpenAPI document, and the tests hold every answer against them.

/** Prefix and 26 characters of Crockford's base32 in lower case. */
export const identifier = (prefix: string) => z.string().regex(new RegExp(`^${prefix}_[0-9a-hjkmnp-tv-z]{26}$`))

/** Unix seconds. */
export const time = () => z.int()

export const timeOrNull = () => z.int().nullable()

export const textOrNull = () => z.string().nullable()

export const count = () => z.int().min(0)
