/**
 * An adjustable clock that survives the process, because the rows of the data folder hold times of it: how far it is
 * ahead stands in a file, written each second while it runs faster. A kill loses at most the last real second. A file
 * that cannot be read throws at start: its fix is `--fresh`.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SECOND } from '../base/clock.ts'
import type { Logger } from '../base/logger.ts'
import { createAdjustableClock, LOWEST_SPEED } from './adjustable-clock.ts'

const KEEP_EVERY = SECOND
const UNCHANGED = '{"ahead":0}'

/** In the data folder. It runs at the speed of real time until it is told otherwise. */
export function openKeptClock({ folder, logger }: { folder: string; logger: Logger }) {
  const file = join(folder, 'clock.json')
  let kept = existsSync(file) ? readFileSync(file, 'utf8') : UNCHANGED
  const clock = createAdjustableClock({ speed: LOWEST_SPEED, ahead: readAhead(kept, file) })
  /** Writes how far ahead it is. */
  const keep = (): void => {
    const text = JSON.stringify({ ahead: clock.ahead() })
    if (text === kept) return
    writeFileSync(`${file}.new`, text, { mode: 0o600 })
    renameSync(`${file}.new`, file)
    kept = text
  }
  const keepWhileFast = (): void => {
    try {
      if (clock.speed() > LOWEST_SPEED) keep()
    } catch (thrown) {
      logger.warn({ err: thrown }, 'application time could not be kept')
    }
  }
  const timer = setInterval(keepWhileFast, KEEP_EVERY)
  // The server lives by its sockets.
  timer.unref()
  return {
    clock,
    keep,
    /** Keeps it a last time. */
    async stop(): Promise<void> {
      clearInterval(timer)
      keep()
    },
  }
}

function readAhead(text: string, file: string): number {
  // Digits of milliseconds.
  const ahead = /^\{"ahead":(\d{1,15})\}$/.exec(text)?.[1]
  if (ahead === undefined) throw new Error(`${file} is damaged; start over with --fresh`)
  return Number(ahead)
}
