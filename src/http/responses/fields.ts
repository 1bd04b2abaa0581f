/**
 * Fields that many answers have (http/README.md "Conventions"). The schemas describe answers: they stand in the OpenAPI
 * document, and the tests hold every answer against them.
 */
import { z } from 'zod'

/** Prefix and 26 characters of Crockford's base32 in lower case. */
export const identifier = (prefix: string) => z.string().regex(new RegExp(`^${prefix}_[0-9a-hjkmnp-tv-z]{26}$`))

/** Unix seconds. */
export const time = () => z.int()

export const timeOrNull = () => z.int().nullable()

export const textOrNull = () => z.string().nullable()

export const count = () => z.int().min(0)
