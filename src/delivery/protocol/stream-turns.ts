/**
 * Whose turn it is between mail that is urgent (transactional) and mail that is not, where both wait: four turns, then
 * one. So one urgent message goes before all others, and a flood of them does not starve the rest. Pure; every step
 * takes constant time. delivery/README.md "Fairness".
 */
export type StreamTurns = ReturnType<typeof createStreamTurns>

const URGENT_TURNS = 4

export function createStreamTurns() {
  let urgentInRow = 0
  return {
    /** True: an urgent one. At least one of both is there; the turn is taken. */
    isUrgentNext(hasUrgent: boolean, hasOthers: boolean): boolean {
      const isUrgent = hasUrgent && (!hasOthers || urgentInRow < URGENT_TURNS)
      // Turns that nobody else wanted are not owed.
      urgentInRow = isUrgent && hasOthers ? urgentInRow + 1 : 0
      return isUrgent
    },
  }
}

/** What waits for its turn, each stream in the order in which it came. */
export function createTurnQueue<Item>() {
  // A set keeps the order, and gives its first one away at no cost.
  const urgent = new Set<Item>()
  const others = new Set<Item>()
  const turns = createStreamTurns()
  return {
    /** One that waits already keeps its place, but becomes urgent where it was not. */
    add(item: Item, isUrgent: boolean): void {
      if (isUrgent) others.delete(item)
      if (isUrgent || !urgent.has(item)) (isUrgent ? urgent : others).add(item)
    },
    take: () => takeFirst(turns.isUrgentNext(urgent.size > 0, others.size > 0) ? urgent : others),
    delete(item: Item): void {
      urgent.delete(item)
      others.delete(item)
    },
    size: () => urgent.size + others.size,
    hasUrgent: () => urgent.size > 0,
    /** Urgent ones first. */
    *all(): Iterable<Item> {
      yield* urgent
      yield* others
    },
  }
}

function takeFirst<Item>(items: Set<Item>): Item | undefined {
  for (const item of items) {
    items.delete(item)
    return item
  }
  return undefined
}
