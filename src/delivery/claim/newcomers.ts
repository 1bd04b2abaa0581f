/**
 * Who is new in an order of turns, and goes before all that wait, for at most one turn in two. A member that left with
 * nothing to do and returns before the others had their turns is not new. Pure; every step takes constant time on
 * average; remembers as many as are in the order.
 */
/** Turns that nobody new has used, at most. */
const MOST_CREDIT = 100
const CREDIT_PER_TURN = 0.5

/** `size`: how many are in the order. */
export function createNewcomers(size: () => number) {
  /** After how many turns each one left; the earliest first. */
  const left = new Map<string, number>()
  let turns = 0
  let credit = 0

  const isLongAgo = (at: number): boolean => turns - at > size()

  return {
    /** It comes in; true: its turn is next. */
    come(name: string): boolean {
      const leftAt = left.get(name)
      if (credit < 1 || (leftAt !== undefined && !isLongAgo(leftAt))) return false
      credit--
      return true
    },
    /** It goes out, after a turn. */
    leave(name: string): void {
      left.delete(name)
      left.set(name, turns)
      for (const [earliest, at] of left) {
        if (!isLongAgo(at)) break
        left.delete(earliest)
      }
    },
    /** Somebody had a turn. */
    turn(): void {
      turns++
      credit = Math.min(MOST_CREDIT, credit + CREDIT_PER_TURN)
    },
  }
}
