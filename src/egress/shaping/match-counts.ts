/**
 * Matches within a sliding time, by name; counting starts anew after each time they were enough (egress/README.md
 * "Reply rules").
 *
 * Pure; times are Unix milliseconds.
 */
import type { Threshold } from '../../config/settings/provider-settings.ts'

/** By the rule's id, or by what else is counted: when, oldest first. */
export type MatchCounts = Map<string, number[]>

/** Counts one more; true: these were enough. */
export function countMatch(counts: MatchCounts, name: string, threshold: Threshold, now: number): boolean {
  const { count, within_milliseconds: within } = threshold
  const recent = (counts.get(name) ?? []).filter((at) => within === null || at > now - within)
  recent.push(now)
  if (recent.length < count) {
    counts.set(name, recent)
    return false
  }
  counts.delete(name)
  return true
}

/** What is older than any threshold reaches says nothing any more. */
export function forgetOldMatches(counts: MatchCounts, before: number): void {
  for (const [name, times] of counts) if ((times.at(-1) ?? 0) < before) counts.delete(name)
}
