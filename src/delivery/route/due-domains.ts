/**
 * Which recipient domain is looked up next: in turns the one that is due longest and the one that came last, so that
 * thousands before a domain do not hold it up. Bounded; says when it had to leave out a due domain. Never throws.
 */
import { createTimeHeap } from '../../base/time-heap.ts'

/** Domains in memory; more are fetched from the store when none of these is due. */
const MOST_DOMAINS = 20_000
/** Domains of which it is remembered in what order they came. */
const MOST_NEWEST = 1_000

/** `slack`: so many more that are due; those that are due later never keep out one that is due. */
export function createDueDomains(slack: number) {
  const domains = createTimeHeap<string>()
  /** Those that came due, the last one at the end. */
  let newest: string[] = []
  let isNewestNext = false

  /** The one that came last of those that are due still; undefined: nobody knows. */
  function takeNewest(now: number): string | undefined {
    for (let domain = newest.pop(); domain !== undefined; domain = newest.pop()) {
      if ((domains.timeOf(domain) ?? Infinity) <= now) return domain
    }
    return undefined
  }

  return {
    /** False: a domain that is due found no room. */
    add(domain: string, at: number, isDue: boolean): boolean {
      const known = domains.timeOf(domain)
      if (known === undefined && domains.size() >= MOST_DOMAINS + (isDue ? slack : 0)) return !isDue
      if (at >= (known ?? Infinity)) return true
      domains.set(domain, at)
      if (isDue) newest.push(domain)
      if (newest.length > 2 * MOST_NEWEST) newest = newest.slice(-MOST_NEWEST)
      return true
    },
    /** The next one that is due, which stays in; undefined: none is. */
    next(now: number): string | undefined {
      const first = domains.peek()
      if (first === undefined || first.at > now) return undefined
      isNewestNext = !isNewestNext
      return (isNewestNext ? takeNewest(now) : undefined) ?? first.item
    },
    /** Due at another time, whatever it was before. */
    move: domains.set,
    remove: domains.remove,
    /** When the first of them is due; undefined: there is none. */
    nextAt: () => domains.peek()?.at,
  }
}
