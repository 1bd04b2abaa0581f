/**
 * Waiting for something to arrive: answers as soon as a look finds entries, or at the end of the time with none.
 *
 * It waits in real time, whatever clock the schedules follow: somebody holds an HTTP request open meanwhile.
 */
export function createEntryWatch() {
  const waiting = new Set<() => void>()
  let isClosed = false
  const lookAgain = (): void => {
    for (const look of waiting) look()
  }

  return {
    /** Something arrived: everybody who waits looks again. */
    changed: lookAgain,
    /** The first look that finds anything; an empty list when the time is over or the watch was closed. */
    wait: <Entry>(look: () => Entry[], mostMilliseconds: number) =>
      new Promise<Entry[]>((resolve) => {
        const first = look()
        if (first.length > 0 || mostMilliseconds === 0 || isClosed) return resolve(first)
        const end = (): void => {
          clearTimeout(timer)
          waiting.delete(check)
          resolve(look())
        }
        const check = (): void => {
          if (isClosed || look().length > 0) end()
        }
        const timer = setTimeout(end, mostMilliseconds)
        waiting.add(check)
      }),
    /** Ends all waiting. */
    close() {
      isClosed = true
      lookAgain()
    },
  }
}
