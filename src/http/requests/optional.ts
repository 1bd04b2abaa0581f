/**
 * Optional fields: `null` is the same as absent (contract.md 1).
 */
import { z } from 'zod'

export const optionalText = () => z.string().nullish()

/** A list of strings; `most` keeps a hostile body cheap. */
export const textList = (most: number) => z.array(z.string()).max(most)
