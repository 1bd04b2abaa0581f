/**
 * Fields that many requests have. Of optional ones `null` is the same as absent (http/README.md "Conventions").
 */
import { z } from 'zod'
import { isObject } from '../exchange/read-fields.ts'

export const optionalText = () => z.string().nullish()

/** A list of strings; `most` keeps a hostile body cheap. */
export const textList = (most: number) => z.array(z.string()).max(most)

/** An object with keys of the caller's choice, handed on as it came; `values` says in OpenAPI what they may be. */
export const freeObject = (values: true | { type: 'string' }) =>
  z
    .custom<Record<string, unknown>>(isObject, 'expected an object')
    .meta({ type: 'object', additionalProperties: values })
