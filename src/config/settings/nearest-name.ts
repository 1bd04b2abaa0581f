/** The name that was probably meant: the nearest of the known ones by edit distance, or null when none is near. */

/** A slip is one wrong, missing, added or swapped letter in three. */
const LETTERS_PER_SLIP = 3

export function nearestName(name: string, known: readonly string[]): string | null {
  let nearest: string | null = null
  let least = Math.max(1, Math.floor(name.length / LETTERS_PER_SLIP)) + 1
  for (const candidate of known) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase())
    // With every letter another, it is another name.
    if (distance < least && distance < Math.max(name.length, candidate.length)) {
      least = distance
      nearest = candidate
    }
  }
  return nearest
}

/** Insertions, deletions, replacements and swaps of neighbours (optimal string alignment). */
function editDistance(from: string, to: string): number {
  let beforeLast: number[] = []
  let last = Array.from({ length: to.length + 1 }, (_, index) => index)
  for (let row = 1; row <= from.length; row++) {
    const current = [row]
    for (let column = 1; column <= to.length; column++) {
      const isSame = from[row - 1] === to[column - 1]
      const isSwap = row > 1 && column > 1 && from[row - 1] === to[column - 2] && from[row - 2] === to[column - 1]
      current.push(
        Math.min(
          (last[column] ?? 0) + 1,
          (current[column - 1] ?? 0) + 1,
          (last[column - 1] ?? 0) + (isSame ? 0 : 1),
          isSwap ? (beforeLast[column - 2] ?? 0) + 1 : Infinity,
        ),
      )
    }
    beforeLast = last
    last = current
  }
  return last[to.length] ?? 0
}
