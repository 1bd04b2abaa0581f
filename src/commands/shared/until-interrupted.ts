/** Verbs that run until somebody stops them: by Ctrl-C or SIGTERM, which is no failure then. */
import type { Clock } from '../../base/clock.ts'

/** Aborted at the first of the two signals; a second one ends the process as usual. */
export function untilInterrupted(): AbortSignal {
  const controller = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => controller.abort())
  return controller.signal
}

/** Over when the time is, or at once when interrupted. */
export function pause(clock: Clock, milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      cancel()
      signal.removeEventListener('abort', end)
      resolve()
    }
    const cancel = clock.after(milliseconds, end)
    if (signal.aborted) end()
    else signal.addEventListener('abort', end)
  })
}
