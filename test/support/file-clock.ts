/**
 * A clock that a file carries: it runs with real time, ahead of it by the milliseconds that stand in the file. Whoever
 * writes there moves every process on this clock, once it looks; a process that was killed goes on where time is.
 */
import { readFileSync, writeFileSync } from 'node:fs'
import type { Clock } from '../../src/base/clock.ts'
import { leapingClock } from './leaping-clock.ts'

export interface FileClock extends Clock {
  /** Reads the file again; timers that have fallen due are called back. */
  look(): void
}

export function fileClock(file: string): FileClock {
  let ahead = readAhead(file)
  const { now, after, leap } = leapingClock(ahead)
  return {
    now,
    after,
    look() {
      const found = readAhead(file)
      leap(found - ahead)
      ahead = found
    },
  }
}

export function readAhead(file: string): number {
  return Number(readFileSync(file, 'utf8'))
}

export function writeAhead(file: string, milliseconds: number): void {
  writeFileSync(file, String(milliseconds))
}
