/**
 * Application time: it runs faster than real time when told to, can jump ahead, and never goes back, not even when the
 * system's clock does. When speed or time changes, every timer is armed anew; those that fell due are called in the
 * order of their times. ServiceError for a speed that cannot be.
 */
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { MINUTE, SECOND } from '../base/clock.ts'
import { ServiceError } from '../base/errors.ts'
import type { Logger } from '../base/logger.ts'

export type AdjustableClock = ReturnType<typeof createAdjustableClock>

interface AdjustableClockOptions {
  speed: number
  /** How far ahead of the system's clock it starts, in milliseconds: as far as it was when it was last looked at. */
  ahead: number
  /** Unix milliseconds of real time. */
  systemNow?: () => number
}

interface Timer {
  /** Application time. */
  at: number
  callback: () => void
  handle?: NodeJS.Timeout
}

/** sandbox/README.md "The sandbox". */
const LOWEST_SPEED = 1
const HIGHEST_SPEED = 100_000
/** No wait of setTimeout is longer, so that a system clock that jumps, or a machine that slept, is seen soon. */
const LONGEST_TIMEOUT = MINUTE
const KEEP_EVERY = SECOND
const UNCHANGED = '{"ahead":0}'

export function createAdjustableClock(options: AdjustableClockOptions) {
  const { systemNow = () => Date.now() } = options
  const timers = new Set<Timer>()
  let { speed } = options
  /** Application time was `shown` when the system's clock said `systemAt`. */
  let systemAt = systemNow()
  let shown = systemAt + options.ahead
  let latest = shown

  const timeAt = (system: number): number => {
    latest = Math.max(latest, Math.floor(shown + (system - systemAt) * speed))
    return latest
  }
  const now = (): number => timeAt(systemNow())
  const arm = (timer: Timer): void => {
    clearTimeout(timer.handle)
    const milliseconds = Math.ceil((timer.at - now()) / speed)
    timer.handle = setTimeout(() => fire(timer), Math.min(Math.max(0, milliseconds), LONGEST_TIMEOUT))
  }
  function fire(timer: Timer): void {
    if (timer.at > now()) return arm(timer)
    timers.delete(timer)
    timer.callback()
  }
  const change = (jump: number, newSpeed: number): void => {
    const system = systemNow()
    shown = timeAt(system) + jump
    systemAt = system
    speed = newSpeed
    // Timers of equal delay are called in the order in which they were set.
    for (const timer of [...timers].sort((left, right) => left.at - right.at)) arm(timer)
  }

  return {
    now,
    /** Application seconds in one real second. */
    speed: () => speed,
    /** How far application time is ahead of the system's clock, in milliseconds; never negative. */
    ahead(): number {
      const system = systemNow()
      return Math.max(0, timeAt(system) - system)
    },
    after(delayMilliseconds: number, callback: () => void): () => void {
      const timer: Timer = { at: now() + Math.max(0, delayMilliseconds), callback }
      timers.add(timer)
      arm(timer)
      return () => {
        clearTimeout(timer.handle)
        timers.delete(timer)
      }
    },
    /** From now on; LOWEST_SPEED to HIGHEST_SPEED. */
    setSpeed(wanted: number): void {
      if (wanted < 0) throw new ServiceError('conflict', 'speed: time never goes backwards')
      if (!(wanted >= LOWEST_SPEED && wanted <= HIGHEST_SPEED)) {
        throw new ServiceError('invalid_request', `speed: must be a number from ${LOWEST_SPEED} to ${HIGHEST_SPEED}`)
      }
      change(0, wanted)
    },
    /** Jumps ahead by so many milliseconds; a negative number does nothing. */
    advance: (milliseconds: number) => change(Math.max(0, milliseconds), speed),
  }
}

/**
 * An adjustable clock that survives the process, because the rows of the data folder hold times of it: how far it is
 * ahead stands in a file there, written each second while it runs faster. A kill loses at most the last real second. It
 * runs at the speed of real time until it is told otherwise. Throws for a file that cannot be read: its fix is
 * `--fresh`.
 */
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
