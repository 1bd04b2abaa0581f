/**
 * Numbers of several runs made into one: medians, percentiles, and digits that mean something.
 */

/** Of numbers in any order; NaN without any. */
export function median(values: readonly number[]): number {
  return percentile(
    values.toSorted((left, right) => left - right),
    0.5,
  )
}

/** The value below which `share` of the ascending values lie. */
export function percentile(ascending: readonly number[], share: number): number {
  return ascending[Math.min(ascending.length - 1, Math.floor(ascending.length * share))] ?? Number.NaN
}

/** Three digits, as a run is never better than that. */
export function threeDigits(value: number): number {
  return Number(value.toPrecision(3))
}

/** Sums by name, in the order of the names' first appearance. */
export function medianByName(runs: readonly Readonly<Record<string, number>>[]): Record<string, number> {
  const names = [...new Set(runs.flatMap((run) => Object.keys(run)))]
  return Object.fromEntries(names.map((name) => [name, threeDigits(median(runs.map((run) => run[name] ?? 0)))]))
}
