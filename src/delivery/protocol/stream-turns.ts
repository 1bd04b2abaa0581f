/**
 * Whose turn it is between mail that is urgent (transactional) and mail that is not, where both wait: four turns, then
 * one. So one urgent message goes before all others, and a flood of them does not starve the rest. Pure.
 * delivery/README.md "Fairness".
 */
export interface StreamTurns {
  /** True: an urgent one. At least one of both is there; the turn is taken. */
  isUrgentNext(hasUrgent: boolean, hasOthers: boolean): boolean
}

const URGENT_TURNS = 4

export function createStreamTurns(): StreamTurns {
  let urgentInRow = 0
  return {
    isUrgentNext(hasUrgent, hasOthers) {
      const isUrgent = hasUrgent && (!hasOthers || urgentInRow < URGENT_TURNS)
      // Turns that nobody else wanted are not owed.
      urgentInRow = isUrgent && hasOthers ? urgentInRow + 1 : 0
      return isUrgent
    },
  }
}
