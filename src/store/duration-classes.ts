/**
 * Durations in classes, so that a day of them fits into a few numbers: four for each doubling, so that a percentile is
 * wrong by at most a tenth. Class 0 is everything up to 1 ms. Pure.
 */

/** Class -> how many durations. */
export type DurationClasses = Record<string, number>

const CLASSES_PER_DOUBLING = 4

export function durationClass(milliseconds: number): number {
  return milliseconds <= 1 ? 0 : Math.ceil(Math.log2(milliseconds) * CLASSES_PER_DOUBLING)
}

export function addDurations(sum: DurationClasses, more: DurationClasses): void {
  for (const name in more) sum[name] = (sum[name] ?? 0) + (more[name] ?? 0)
}

/** The duration that this share of all did not exceed, in whole milliseconds; 0 when there are none. */
export function durationPercentile(classes: DurationClasses, share: number): number {
  const counted = Object.entries(classes).map(([name, count]) => ({ number: Number(name), count }))
  const ordered = counted.sort((one, other) => one.number - other.number)
  const wanted = share * ordered.reduce((sum, { count }) => sum + count, 0)
  let below = 0
  for (const { number, count } of ordered) {
    below += count
    if (below >= wanted) return Math.round(2 ** (middleOf(number) / CLASSES_PER_DOUBLING))
  }
  return 0
}

/** In the scale of the classes, which is logarithmic. */
const middleOf = (number: number): number => Math.max(0, number - 0.5)
