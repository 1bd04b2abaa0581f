/** Waiting with an end. */
import { systemClock, type Clock } from './clock.ts'

/** Undefined: it took longer than so many milliseconds of this clock. Rejects as `waiting` does. */
export async function within<Value>(
  waiting: Promise<Value>,
  milliseconds: number,
  clock: Pick<Clock, 'after'> = systemClock,
): Promise<Value | undefined> {
  const { promise: timeUp, resolve } = Promise.withResolvers<undefined>()
  const cancel = clock.after(milliseconds, () => resolve(undefined))
  try {
    return await Promise.race([waiting, timeUp])
  } finally {
    cancel()
  }
}
