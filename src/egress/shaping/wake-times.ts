/**
 * One timer for many times: it runs to the earliest, and all that are over by then are told at once. Nothing is polled.
 *
 * Times are told at the next multiple of 50 ms, so that a thousand rates wake nobody more often than that.
 */
import type { Clock } from '../../base/clock.ts'

interface WakeTimes {
  /** Unix milliseconds; one that is noted already costs nothing. */
  at(time: number): void
  stop(): void
}

const STEP_MILLISECONDS = 50

export function createWakeTimes({ clock, onTime }: { clock: Clock; onTime: () => void }): WakeTimes {
  /** The latest first, each once. */
  const times: number[] = []
  let armedFor = Infinity
  let cancel: (() => void) | undefined

  function arm(): void {
    const earliest = times.at(-1)
    if (earliest === undefined || earliest >= armedFor) return
    cancel?.()
    armedFor = earliest
    cancel = clock.after(Math.max(0, earliest - clock.now()), fire)
  }

  function fire(): void {
    armedFor = Infinity
    const now = clock.now()
    let isOver = false
    while ((times.at(-1) ?? Infinity) <= now) {
      times.pop()
      isOver = true
    }
    arm()
    if (isOver) onTime()
  }

  return {
    at(wanted) {
      const time = Math.ceil(wanted / STEP_MILLISECONDS) * STEP_MILLISECONDS
      const place = placeOf(times, time)
      if (times[place] === time) return
      times.splice(place, 0, time)
      arm()
    },
    stop() {
      cancel?.()
      times.length = 0
    },
  }
}

/** The first place whose time is not later. */
function placeOf(latestFirst: readonly number[], time: number): number {
  let [low, high] = [0, latestFirst.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((latestFirst[middle] ?? 0) > time) low = middle + 1
    else high = middle
  }
  return low
}
