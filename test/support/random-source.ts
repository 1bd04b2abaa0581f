/**
 * Numbers that look like chance and are the same in every run: a failure can be repeated by its seed.
 */

export interface RandomSource {
  /** From 0 to below 1. */
  next(): number
  /** From 0 to below the limit. */
  integer(limit: number): number
  oneOf<Value>(values: readonly Value[]): Value
}

/** Marsaglia's xorshift over 32 bits. */
export function randomSource(seed: number): RandomSource {
  // Zero would stay zero.
  let state = (seed * 2_654_435_761) >>> 0 || 1
  const next = (): number => {
    state ^= state << 13
    state ^= state >>> 17
    state ^= state << 5
    return (state >>> 0) / 2 ** 32
  }
  const integer = (limit: number): number => Math.floor(next() * limit)
  return {
    next,
    integer,
    oneOf(values) {
      const value = values[integer(values.length)]
      if (value === undefined) throw new Error('nothing to choose from')
      return value
    },
  }
}
