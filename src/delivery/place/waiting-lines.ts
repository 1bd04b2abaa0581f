/**
 * Rows that only one IP may send, while others of the pool are open: their queue key is not closed, so each would be
 * claimed again for every token of that IP's rate. Instead they stand in line, as far apart as the tokens come: the
 * work is bound by what can be sent. Pure but for its memory; never throws.
 */
interface Line {
  /** When the last one of it is due. */
  endsAt: number
  /** The longest wait seen since the line began: the first one may have met a token that was nearly there. */
  gap: number
  /** The token that somebody has been told to come for: whoever came a little too early does not begin at the end. */
  promised: number
}

/** Returns when one more row of this line is due; `nextAt`: of the next token. */
export function createWaitingLines(): (line: string, nextAt: number, now: number) => number {
  const lines = new Map<string, Line>()

  function forgetEnded(now: number): void {
    for (const [name, { endsAt }] of lines) if (endsAt <= now) lines.delete(name)
  }

  return (name, nextAt, now) => {
    forgetEnded(now)
    const line = lines.get(name) ?? { endsAt: nextAt, gap: 0, promised: 0 }
    lines.set(name, line)
    line.gap = Math.max(line.gap, nextAt - now)
    if (nextAt > line.promised) return (line.promised = nextAt)
    line.endsAt = Math.max(nextAt, line.endsAt) + line.gap
    return line.endsAt
  }
}
