/** The clicks of the last seconds, by message, so that a burst of them is seen (messages/README.md "Hits"). Bounded. */
import { isOfBurst, SAME_RUN_WITHIN, TWO_NETWORKS_WITHIN, type Click, type ClickRun } from './machine-hits.ts'

/** So many within seconds are of several links or networks. */
const MOST_RUNS_OF_MESSAGE = 50
const MOST_MESSAGES = 10_000

export function createRecentClicks() {
  const runs = new Map<string, ClickRun[]>()
  return {
    add(messageId: string, click: Click) {
      const known = runs.get(messageId) ?? []
      runs.set(messageId, known)
      const run = known.findLast(
        ({ linkNumber, network }) => linkNumber === click.linkNumber && network === click.network,
      )
      if (run !== undefined && click.at <= run.until + SAME_RUN_WITHIN) run.until = click.at
      else if (known.length < MOST_RUNS_OF_MESSAGE) known.push({ ...click, until: click.at })
      const [oldest] = runs.keys()
      if (runs.size > MOST_MESSAGES && oldest !== undefined) runs.delete(oldest)
    },
    isOfBurst(messageId: string, click: Click) {
      const others = runs.get(messageId) ?? []
      return others.length === MOST_RUNS_OF_MESSAGE || isOfBurst(click, others)
    },
    /** What no click that came since `since` can be in a burst with is forgotten. */
    forget(since: number) {
      for (const [messageId, known] of runs) {
        const kept = known.filter(({ until }) => until >= since - TWO_NETWORKS_WITHIN)
        if (kept.length === 0) runs.delete(messageId)
        else if (kept.length < known.length) runs.set(messageId, kept)
      }
    },
  }
}
