/**
 * The one background loop: a round of work, then a wait until the time that `round` returned, or for a wake-up alone
 * (null). A wake-up during a round makes another round at once, so none is lost. A round that throws is tried again after
 * one second, and `onError` is told, but not again of the same until a round has succeeded: a loop never dies silently.
 */
import { SECOND, type Clock } from './clock.ts'
import { errorText } from './errors.ts'

interface PollLoopOptions {
  clock: Clock
  round: () => Promise<number | null>
  onError: (thrown: unknown) => void
}

const PAUSE_AFTER_ERROR = SECOND

export function createPollLoop({ clock, round, onError }: PollLoopOptions) {
  let state: 'idle' | 'running' | 'stopped' = 'stopped'
  let wakeAgain = false
  let cancelTimer = (): void => {}
  let running: Promise<void> = Promise.resolve()
  let failure: string | undefined

  const run = async (): Promise<void> => {
    let dueAt: number | null
    do {
      wakeAgain = false
      try {
        dueAt = await round()
        failure = undefined
      } catch (thrown) {
        if (failure !== errorText(thrown)) onError(thrown)
        failure = errorText(thrown)
        dueAt = clock.now() + PAUSE_AFTER_ERROR
      }
    } while (wakeAgain && state === 'running')
    if (state === 'stopped') return
    state = 'idle'
    if (dueAt !== null) cancelTimer = clock.after(Math.max(0, dueAt - clock.now()), wake)
  }

  function wake(): void {
    if (state === 'running') wakeAgain = true
    if (state !== 'idle') return
    cancelTimer()
    state = 'running'
    running = run()
  }

  return {
    start(): void {
      state = 'idle'
      wake()
    },
    /** There may be new work. Saves waiting; carries no data. */
    wake,
    /** No new round starts; resolves when the running one has ended. */
    async stop(): Promise<void> {
      state = 'stopped'
      cancelTimer()
      await running
    },
  }
}
