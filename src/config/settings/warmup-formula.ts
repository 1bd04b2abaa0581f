/**
 * A warmup curve from three numbers (egress/README.md "Curves"): stage n is `min(max, round(start × factor^(n−1)))`,
 * rounded to two significant digits, until `max` is reached. Pure; a formula that never gets there ends at MOST_STAGES.
 */

/** A curve has 1 to 120 stages (egress/README.md "Curves"). */
export const MOST_STAGES = 120
/** 10,000 messages a second for a whole day: more is a slip of the hand. */
export const LARGEST_STAGE = 864_000_000

interface CurveFormula {
  start: number
  factor: number
  max: number
}

export function expandFormula({ start, factor, max }: CurveFormula): number[] {
  const stages: number[] = []
  for (let exponent = 0; exponent < MOST_STAGES; exponent++) {
    const exact = Math.round(start * factor ** exponent)
    // Rounding up may lead above the maximum.
    const stage = exact >= max ? max : Math.min(max, twoSignificantDigits(exact))
    stages.push(stage)
    if (stage === max) break
  }
  return stages
}

function twoSignificantDigits(value: number): number {
  return Number(value.toPrecision(2))
}
