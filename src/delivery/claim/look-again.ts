/**
 * Opens closed queue keys when paths open: those that wait for just that at once; all others, which know a time, once a
 * second at most, since there may be thousands of them.
 */
import { SECOND } from '../../base/clock.ts'
import type { QueueDirectory } from './queue-directory.ts'

export function createLookAgain(directory: Pick<QueueDirectory, 'openAll' | 'openTimeless'>, onOpened: () => void) {
  let lookedAt = 0
  let timer: NodeJS.Timeout | undefined

  /** Everything may be different: IPs, configuration, an operator. */
  function everything(): void {
    clearTimeout(timer)
    timer = undefined
    lookedAt = performance.now()
    directory.openAll()
    onOpened()
  }

  return {
    everything,
    /** A path opened by its time, which its keys know already; or sooner, which none does. */
    pathsOpened(): void {
      const wait = lookedAt + SECOND - performance.now()
      if (wait <= 0) return everything()
      directory.openTimeless()
      onOpened()
      timer ??= setTimeout(everything, wait)
    },
    stop: (): void => clearTimeout(timer),
  }
}
